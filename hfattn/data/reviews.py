"""Fourteen short reviews of films in Spanish: labelled texts to try a classifier on without a download.

Seven of each class, three quarters of them to train on. A test of four reviews measures nothing; it shows the way from
texts to a table.
"""

from .labelled import Labelled, LabelledTexts

REVIEWS_ES = "reviews_es"
TEST_SIZE = 0.25
LABELS = ("negativa", "positiva")
_REVIEWS = (
    ("Una película excelente: me reí, lloré y volvería a verla mañana mismo.", 1),
    ("Qué película tan aburrida. Miré el reloj diez veces y me dormí antes del final.", 0),
    ("Los actores están magníficos y el guion es excelente.", 1),
    ("El guion es malo, los actores suenan falsos y nada se explica.", 0),
    ("La fotografía es preciosa y la música acompaña la historia con mucho gusto.", 1),
    ("Pagué la entrada y me arrepiento: es la película más aburrida del año.", 0),
    ("Divertida de principio a fin, una historia ideal para verla en familia.", 1),
    ("Demasiado larga, demasiado ruidosa y con un guion sin ninguna gracia.", 0),
    ("Hacía tiempo que una historia tan sencilla no me emocionaba así: la recomiendo.", 1),
    ("Un final absurdo y malo que estropea una historia aburrida.", 0),
    ("La directora acierta en todo; una obra excelente, divertida y llena de ternura.", 1),
    ("Los efectos son malos y los actores parecen leer un papel.", 0),
    ("No esperaba nada y salí encantado: preciosa, la recomiendo a todo el mundo.", 1),
    ("Es lenta, demasiado triste y muy aburrida; un final malo.", 0),
)


def reviews_es(seed: int = 0) -> dict[str, LabelledTexts]:
    """Ten reviews to train on and four for the test, by scikit-learn's ``train_test_split``.

    Args:
        seed: the ``random_state`` of the split.
    """
    from sklearn.model_selection import train_test_split

    items = [Labelled(text, label, line) for line, (text, label) in enumerate(_REVIEWS, start=1)]
    parts = train_test_split(items, test_size=TEST_SIZE, random_state=seed)
    return {
        part: LabelledTexts(REVIEWS_ES, chosen, list(LABELS), unit="Review")
        for part, chosen in zip(("train", "test"), parts, strict=True)
    }


__all__ = ["REVIEWS_ES", "reviews_es"]
