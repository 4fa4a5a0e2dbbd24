"""What the recipes leave in their run folders: results, pictures, summaries and cards.

Each module belongs to one kind of recipe. It writes the ``results.json`` that the card template of the same name in
``model_cards/`` reads.
"""
