"""Features that training and translation do not need: recipes, data checks, exports, imports, pictures and others."""
