"""What a log may hold to become an element or a script of a page."""

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "'-alert(5)-'",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(6)",
    "&lt;script&gt;",
    "\u2028\u2029\u202e\x1b]8;;http://evil/\x07link",
    "</style><style>*{display:none}</style>",
    "</title></head>",
)
