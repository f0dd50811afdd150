"""Train on a string and write new text: python examples/fit_text.py"""

from pydoc_data.topics import topics

import chainrule

run = chainrule.fit(text="\n".join(topics.values()), budget="30s")
print(run.sample(1, prompt="The ", length=300)[0])
