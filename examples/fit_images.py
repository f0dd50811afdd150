"""Train a PixelCNN on an array of images and draw new ones: python examples/fit_images.py"""

from sklearn.datasets import load_digits

import chainrule

run = chainrule.fit(load_digits().images.astype("uint8"), model="pixelcnn", budget="30s")
print(run.sample(2))
