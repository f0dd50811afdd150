"""A PixelCNN of an array of images draws new ones: python examples/fit_images.py"""

from sklearn.datasets import load_digits

import chainrule

run = chainrule.fit(load_digits().images.astype("uint8"), model="pixelcnn", budget="30s")
print(run.sample(2))
