"""Functions beside training and translation: recipes, data checks, exports and other models, pictures."""
