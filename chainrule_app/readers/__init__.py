"""Files, archives and streams become typed columns, texts, images and sounds, and prepared stores of them."""
