"""How Sphinx builds the documentation site. ``make docs`` runs it, with warnings as errors."""

import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT), str(PROJECT / "src")]

from coterie import __version__  # noqa: E402 - the path comes first

project = "Coterie"
author = "The Coterie authors"
copyright = "The Coterie authors. Apache-2.0"  # noqa: A001 - the name that Sphinx expects
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "docs.extension"]
exclude_patterns = ["trials", "extension"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
smartquotes = False  # options such as --json stay as they are typed
highlight_language = "none"
default_role = "literal"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries = False

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "Coterie"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e69", "color-brand-content": "#0b6e69"},
    "dark_css_variables": {"color-brand-primary": "#5cc8bf", "color-brand-content": "#5cc8bf"},
}
