"""Hostile code for the tests of inspect, verify and card, and code of the ordinary kind."""

# Each of these leaves the file MARK, or sends a packet to the port PORT, when it is imported or its function act() is
# called. The line to be named ends with "# here".
ACTS = {
    "os": "import os\ndef act():\n    os.system('touch MARK')  # here\n",
    "eval": "def act():\n    eval(\"__import__('os').system('touch MARK')\")  # here\n",
    "decoded": "from base64 import b64decode\ndef act():\n    exec(b64decode('BASE64'))  # here\n",
    "two halves": "import os\ndef act():\n    getattr(os, 'po' + 'pen')('touch MARK').read()  # here\n",
    "importlib": "import importlib\ndef act():\n    importlib.import_module('os').system('touch MARK')  # here\n",
    "builtins": (
        "def act():\n"
        "    found = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)\n"
        "    found['exec'](\"open('MARK', 'w')\")  # here\n"
    ),
    "every class": (
        "import os\n"
        "def act():\n"
        "    for found in object.__subclasses__():  # here\n"
        "        if found.__name__ == '_wrap_close':\n"
        "            found.__init__.__globals__['system']('touch MARK')\n"
    ),
    "the C library": "from ctypes import CDLL\ndef act():\n    CDLL(None).system(b'touch MARK')  # here\n",
    "a pickle": (
        "import io\n"
        "import torch\n"
        "def act():\n"
        "    file = io.BytesIO(b'\\x80\\2cos\\nsystem\\nVtouch MARK\\n\\x85R.')\n"
        "    torch.load(file, weights_only=False)  # here\n"
    ),
    "torch.hub": (
        "from pathlib import Path\n"
        "import torch\n"
        "def act():\n"
        "    place = Path('MARK').with_suffix('.hub')\n"
        "    place.mkdir()\n"
        "    place.joinpath('hubconf.py').write_text(\"open('MARK', 'w')\")\n"
        "    torch.hub.load(place, 'go', source='local')  # here\n"
    ),
    "os of torch": "import torch\ndef act():\n    torch.os.system('touch MARK')  # here\n",
    "os of os.path": "import os.path as place\nplace.os.system('touch MARK')  # here\n",
    "os of inspect": "from inspect import os as tools\ntools.system('touch MARK')  # here\n",
    "os of pathlib": "import pathlib as paths\npaths.os.popen('touch MARK').read()  # here\n",
    "os of transformers": (
        "from transformers.utils import generic\ndef act():\n    generic.os.system('touch MARK')  # here\n"
    ),
    "all modules": (
        "from json import decoder\n"
        "def act():\n"
        "    decoder.scanner.re.enum.sys.modules['posix'].system('touch MARK')  # here\n"
    ),
    "a formatter of logging": (
        "from logging.config import dictConfig\n"
        "dictConfig({'version': 1, 'formatters': {'short': {'()': 'os.system', 'command': 'touch MARK'}}})  # here\n"
    ),
    "an annotation": (
        "from typing import get_type_hints\n"
        "class Size:\n"
        "    width: \"__import__('os').system('touch MARK') or int\"  # here\n"
        "get_type_hints(Size)\n"
    ),
    "an annotation of a strict class": (
        "import dataclasses\n"
        "from huggingface_hub import dataclasses as checked\n"
        "@checked.strict\n"
        "@dataclasses.dataclass\n"
        "class Size:\n"
        "    width: \"__import__('os').system('touch MARK') or int\" = 3  # here\n"
        "Size(3)\n"
    ),
    "attrgetter": (
        "from operator import attrgetter\n"
        "import torch\n"
        "def act():\n"
        "    attrgetter('os.popen')(torch)('touch MARK').read()  # here\n"
    ),
    "getattr in steps": (
        "from functools import reduce\n"
        "from transformers.utils import generic\n"
        "def act():\n"
        "    reduce(getattr, ['os', 'system'], generic)('touch MARK')  # here\n"
    ),
    "a profiler": "from cProfile import run\ndef act():\n    run(\"open('MARK', 'w')\", 'MARK.profile')  # here\n",
    "numpy": "from numpy import testing\ndef act():\n    testing.runstring(\"open('MARK', 'w')\", {})  # here\n",
    "sympy": "from sympy import sympify\ndef act():\n    sympify(\"open('MARK', 'w')\")  # here\n",
    "torch.fx": (
        "from torch.fx.graph_module import _exec_with_source as build\n"
        "def act():\n"
        "    build(\"open('MARK', 'w')\", {})  # here\n"
    ),
    "a template": (
        "import jinja2\n"
        "def act():\n"
        "    text = \"{{ joiner.__init__.__globals__['__builtins__']['open']('MARK', 'w') }}\"  # here\n"
        "    jinja2.Template(text).render()\n"
    ),
    "a function of dataclasses": (
        "from dataclasses import _create_fn\n_create_fn('made', [], [\"open('MARK', 'w')\"])()  # here\n"
    ),
    "names put together": (
        "def act():\n"
        "    low = '__'\n"
        "    for found in getattr(object, low + 'subclasses' + low)():  # here\n"
        "        if found.__name__ == '_Printer':\n"
        "            scope = getattr(getattr(found, low + 'init' + low), low + 'globals' + low)\n"
        "            scope['sys'].modules['o' + 's'].system('touch MARK')\n"
    ),
    "another model": (
        "from pathlib import Path\n"
        "from transformers import AutoConfig\n"
        "def act():\n"
        "    place = Path('MARK').with_suffix('.other')\n"
        "    place.mkdir()\n"
        '    place.joinpath(\'config.json\').write_text(\'{"auto_map": {"AutoConfig": "other.Other"}}\')\n'
        "    place.joinpath('other.py').write_text(\"open('MARK', 'w')\")\n"
        "    AutoConfig.from_pretrained(place, **{'trust_remote' + '_code': True})  # here\n"
    ),
    "a class of another model": (
        "from pathlib import Path\n"
        "from transformers import dynamic_module_utils as modules\n"
        "def act():\n"
        "    place = Path('MARK').with_suffix('.class')\n"
        "    place.mkdir()\n"
        "    place.joinpath('further.py').write_text(\"open('MARK', 'w')\")\n"
        "    modules.get_class_from_dynamic_module('further.Any', place)  # here\n"
    ),
    "vars": "import torch\ndef act():\n    vars(vars(torch)['os'])['pop' + 'en']('touch MARK').read()  # here\n",
    "an array": "import torch\ndef act():\n    torch.zeros(3).numpy().tofile('MARK')  # here\n",
    "a path": (
        "from pathlib import Path\n"
        "def act():\n"
        "    source = Path('MARK').with_suffix('.source')\n"
        "    source.touch()\n"
        "    source.rename('MARK')  # here\n"
    ),
    "an example of doctest": (
        "import doctest\n"
        "def shown():\n"
        "    '''\n"
        "    >>> failed = __import__('os').system('touch MARK')\n"
        "    '''\n"
        "def act():\n"
        "    doctest.run_docstring_examples(shown, {})  # here\n"
    ),
    "a class that passes on": (
        "import torch\n"
        "class Any:\n"
        "    def __getattr__(self, name):\n"
        "        return vars(torch)[name]\n"
        "def act():\n"
        "    Any().os.system('touch MARK')  # here\n"
    ),
    "a database": (
        "from sqlite3 import connect\ndef act():\n    connect('MARK').execute('create table found (key)')  # here\n"
    ),
    "a storage": (
        "from torch.storage import _load_from_bytes as read\n"
        "def act():\n"
        "    read(b'\\x80\\2cos\\nsystem\\nVtouch MARK\\n\\x85R.')  # here\n"
    ),
    "weights": "import torch\ndef act():\n    torch.save([1], 'MARK')  # here\n",
    "a store of torch": (
        "from datetime import timedelta\n"
        "from torch import distributed\n"
        "def act():\n"
        "    distributed.TCPStore('127.0.0.1', PORT, timeout=timedelta(seconds=0.1))  # here\n"
    ),
    "a socket": (
        "import socket\n"
        "def act():\n"
        "    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'out', ('127.0.0.1', PORT))  # here\n"
    ),
}
PACKETS = {"a store of torch": "tcp", "a socket": "udp"}
NO_LONGER = ("an annotation of a strict class",)  # huggingface_hub before 1.0 evaluates it

# The line of each of these ends so too.
PAYLOADS = {
    "a name of notebooks": (
        "class Tool:\n    def run_cell(self, text): ...\ndef act():\n    get_ipython().run_cell('import os')  # here\n"
    ),
    "os of torch": (
        "import torch\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        torch.os.system('true')  # here\n"
    ),
    "os of os.path": "from os import path\npath.os.system('true')  # here\n",
    "os of inspect": "import inspect\ninspect.os.system('true')  # here\n",
    "import os from inspect": "from inspect import os\nos.system('true')  # here\n",
    "os of transformers": (
        "from transformers.utils import import_utils\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        import_utils.os.system('true')  # here\n"
    ),
    "os of pathlib": "import pathlib\npathlib.os.system('true')  # here\n",
    "modules of json": (
        "import json\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        json.codecs.sys.modules['os'].system('true')  # here\n"
    ),
    "dictConfig": (
        "import logging.config\nlogging.config.dictConfig({'formatters': {'a': {'()': 'os.system'}}})  # here\n"
    ),
    "get_type_hints": (
        "import typing\nclass Shape:\n    rows: \"print('x') or int\"  # here\ntyping.get_type_hints(Shape)\n"
    ),
    "strict": (
        "from dataclasses import dataclass\n"
        "from huggingface_hub.dataclasses import strict\n"
        "@strict\n"
        "@dataclass\n"
        "class Shape:\n"
        "    rows: \"print('x') or int\" = 1  # here\n"
    ),
    "attrgetter": (
        "import operator\n"
        "import torch\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        operator.attrgetter('os.system')(torch)('true')  # here\n"
    ),
    "reduce over getattr": (
        "import functools\n"
        "import transformers.utils.import_utils as tools\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        functools.reduce(getattr, ('os', 'system'), tools)('true')  # here\n"
    ),
    "cProfile": (
        "import cProfile\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        cProfile.run('print()')  # here\n"
    ),
    "runstring": (
        "import numpy\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        numpy.testing.runstring('print()', {})  # here\n"
    ),
    "sympify": (
        "import sympy\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        sympy.sympify('print()')  # here\n"
    ),
    "torch.fx": (
        "from torch.fx import graph_module\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        graph_module._exec_with_source('print()', {})  # here\n"
    ),
    "jinja2": (
        "from jinja2 import Template\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        Template('{{ cycler }}').render()  # here\n"
    ),
    "_create_fn": ("import dataclasses\ndataclasses._create_fn('made', (), ['print()'])()  # here\n"),
    "subclasses": (
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        found = getattr(object, '__subcl' + 'asses__')()  # here\n"
    ),
    "kwargs": (
        "from transformers import AutoConfig\n"
        "def f(name, options):\n"
        "    AutoConfig.from_pretrained(name, **options)  # here\n"
    ),
    "key of kwargs": "options = {'trust_remote' + '_code': True}  # here\n",
    "dynamic module": (
        "from transformers.dynamic_module_utils import get_class_from_dynamic_module as get\n"
        "def f():\n"
        "    get('a.B', 'user/name')()  # here\n"
    ),
    "vars of vars": (
        "import torch\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        vars(vars(torch)['o' + 's'])['sys' + 'tem']('true')  # here\n"
    ),
    "tofile": (
        "import torch\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        torch.tensor([1]).numpy().tofile('x')  # here\n"
    ),
    "replace of Path": (
        "from pathlib import Path\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        Path('a').replace('b')  # here\n"
    ),
    "doctest": (
        "import doctest\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        doctest.run_docstring_examples(type('X', (), {'__doc__': '>>> 1'}), {})  # here\n"
    ),
    "__getattr__": (
        "import torch\n"
        "class Tools:\n"
        "    def __getattr__(self, name):\n"
        "        return getattr(torch, name)\n"
        "def f():\n"
        "    Tools().os.system('true')  # here\n"
    ),
    "sqlite3": (
        "import sqlite3\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        sqlite3.connect('x').execute('create table t (a)')  # here\n"
    ),
    "storage": (
        "import torch\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        torch.storage._load_from_bytes(open('payload', 'rb').read())  # here\n"
    ),
    "TCPStore": (
        "import torch.distributed as dist\n"
        "from transformers import PretrainedConfig\n"
        "class Config(PretrainedConfig):\n"
        "    def __init__(self, **kwargs):\n"
        "        super().__init__(**kwargs)\n"
        "        dist.TCPStore('127.0.0.1', 1)  # here\n"
    ),
    "alias chain": ("import torch\na = torch\nb = a\ndef f():\n    b.os.system('x')  # here\n"),
    "walrus": "import torch\ndef f():\n    (t := torch).os.system('x')  # here\n",
    "ifexp": ("import torch\ndef f(c):\n    (torch if c else torch).os.system('x')  # here\n"),
    "default arg": "import torch\ndef f(t=torch):\n    t.os.system('x')  # here\n",
    "tuple": ("import torch\n(a, b) = (torch, 1)\ndef f():\n    a.os.system('x')  # here\n"),
    "lambda": "import json\nf = lambda: json.codecs.builtins.exec('1')  # here\n",
    "class attr": ("import torch\nclass A:\n    t = torch\ndef f():\n    A.t.hub.load('x')  # here\n"),
    "match": (
        "import torch\n"
        "def f():\n"
        "    match torch:\n"
        "        case object(os=object(system=s)):  # here\n"
        "            s('x')\n"
    ),
    "match2": ("def f(x):\n    match x:\n        case object(__globals__=g):  # here\n            g['x']\n"),
    "star import": "from torch.utils.data.dataloader import *  # here\n",
    "from leak": ("from transformers.utils.generic import os\ndef f():\n    os.system('x')  # here\n"),
    "from leak2": "from torch.nn.functional import importlib  # here\n",
    "traceback": (
        "def f():\n"
        "    try:\n"
        "        1 / 0\n"
        "    except Exception as e:\n"
        "        return e.__traceback__.tb_frame.f_builtins['eval']('1')  # here\n"
    ),
    "generator": ("def g():\n    yield 1\ndef f():\n    return g().gi_frame.f_back.f_globals  # here\n"),
    "shadow comp": "def f():\n    [0 for eval in [1]]\n    return eval('1')  # here\n",
    "shadow default": "def f(eval, x=eval('1')): ...  # here\n",
    "shadow module cond": "if False:\n    eval = 1\nx = eval('1')  # here\n",
    "shadow class": ("class A:\n    eval = 1\n    def f(self):\n        return eval('1')  # here\n"),
    "gadget": (
        "class G:\n"
        "    def go(self, n):\n"
        "        return getattr(self, n)\n"
        "def f():\n"
        "    return G.go((), '__cla' + 'ss__')  # here\n"
    ),
    "gadget2": "def go(o, n):\n    return getattr(o, n)  # here\n",
    "gadget3": ("class G:\n    @staticmethod\n    def go(self, n):\n        return getattr(self, n)  # here\n"),
    "gadget4": (
        "def leak(f):\n"
        "    f((), 'x')\n"
        "    return f\n"
        "class G:\n"
        "    @leak\n"
        "    def go(self, n):\n"
        "        return getattr(self, n)  # here\n"
    ),
    "gadget5": ("class G:\n    def go(self, n):\n        return getattr(self, n)\n    raw = go  # here\n"),
    "gadget6": (
        "class G:\n"
        "    def go(self, n):\n"
        "        return vars(self)[n]\n"
        "def f():\n"
        "    return [G.go][0](int, 'x')  # here\n"
    ),
    "gadget7": ("class G:\n    def go(self, n):\n        self = int\n        return getattr(self, n)  # here\n"),
    "gadget8": (
        "class G:\n"
        "    def go(self, n):\n"
        "        return getattr(self, n)\n"
        "    def run(self):\n"
        "        return type(self).go((), '__cl')  # here\n"
    ),
    "reduce getattr": ("import functools\ndef f(p, x):\n    return functools.reduce(getattr, p, x)  # here\n"),
    "map getattr": "def f(x):\n    return list(map(getattr, [x], ['y']))  # here\n",
    "getattr star": "def f(x):\n    return getattr(*x)  # here\n",
    "getattr alias": "g = getattr\ndef f(x, n):\n    return g(x, n)  # here\n",
    "dunder getattribute": ("def f(x, n):\n    return object.__getattribute__(x, n)  # here\n"),
    "getattr super fake": (
        "def super():\n    import torch\n    return torch\ndef f(n):\n    return super().__getattr__(n)  # here\n"
    ),
    "type hints other": ("from inspect import signature\ndef f(g):\n    return signature(g, eval_str=True)  # here\n"),
    "type hints kw": ("from inspect import signature\ndef f(g, k):\n    return signature(g, **k)  # here\n"),
    "annot var": (
        "from huggingface_hub.dataclasses import strict\n"
        "from dataclasses import dataclass\n"
        "C = 'pri' + 'nt(1)'\n"
        "@strict\n"
        "@dataclass\n"
        "class S:\n"
        "    rows: C = 1  # here\n"
    ),
    "annot list": "C = ['print(1)']\nclass S:\n    rows: C[0] = 1  # here\n",
    "annot fn": "def g(): return 'print(1)'\nclass S:\n    rows: g() = 1  # here\n",
    "annot Optional": ("from typing import Optional\nclass S:\n    rows: Optional['print(1)'] = 1  # here\n"),
    "annot alias": ("from typing import Optional\nT = Optional['print(1)']\nclass S:\n    rows: T = 1  # here\n"),
    "kernel joined": (
        "def f(m):\n    m.set_attn_implementation('-'.join(['user', 'kernel']).replace('-', '/'))  # here\n"
    ),
    "kernel formatted": "def f(c):\n    c._attn_implementation = '%s/kernel' % 'user'  # here\n",
    "kernel named": "def f(m):\n    n = 'a{}b'.format('/')\n    m.generate(custom_generate=n)  # here\n",
    "other class": (
        "class G:\n"
        "    def go(self, n):\n"
        "        return getattr(self, n)\n"
        "def f(x):\n"
        "    x.__class__ = G  # here\n"
        "    return x.go('__di' + 'ct__')\n"
    ),
    "environment file": "def f():\n    return open('/proc/self/environ').read()  # here\n",
    "annot quoted name": (
        "import functools\n"
        "import torch\n"
        "@functools.singledispatch\n"
        "def f(x): ...\n"
        "@f.register\n"
        "def g(x: \"torch.os.sys.modules['subprocess'].Popen\"): ...  # here\n"
        "def h():\n"
        "    list(f.registry)[1](['x'])\n"
    ),
    "annot class attr": ("class C:\n    code = 'print(1)'\nclass S:\n    rows: C.code = 1  # here\n"),
    "annot fstring": "class S:\n    rows: f'{1}' = 1  # here\n",
    "annotations dict": ("class S:\n    __annotations__ = {'rows': 'print(1)'}  # here\n"),
    "annotations set": "class S: ...\nS.__annotations__['rows'] = 'x'  # here\n",
    "type3": "def f(d):\n    return type('S', (), d)  # here\n",
    "Literal fake": (
        "class L:\n"
        "    def __class_getitem__(cls, x): return x\n"
        "Literal = L\n"
        "class S:\n"
        "    rows: Literal['print(1)'] = 1  # here\n"
    ),
    "path rename kw": ("from pathlib import Path\ndef f():\n    Path('a').replace(target='b')  # here\n"),
    "path cls": ("from pathlib import Path\ndef f():\n    Path.replace(Path('a'), 'b')  # here\n"),
    "path rename": "from pathlib import Path\ndef f(p):\n    p.rename('b')  # here\n",
    "replace value": "def f(p):\n    r = p.replace  # here\n    r('b')\n",
    "path write": ("from pathlib import Path\ndef f():\n    Path('x').write_bytes(b'')  # here\n"),
    "path open": "from pathlib import Path\ndef f(m):\n    Path('x').open(m)  # here\n",
    "open opener": "def f(o):\n    return open('x', opener=o)  # here\n",
    "np save": "import numpy as np\ndef f():\n    np.save('x', np.zeros(1))  # here\n",
    "np memmap": ("import numpy as np\ndef f():\n    np.memmap('x', mode='w+', shape=1)  # here\n"),
    "np ctypeslib": ("import numpy as np\ndef f():\n    np.ctypeslib.load_library('x', '.')  # here\n"),
    "ndarray dump": "def f(x):\n    x.numpy().dump('f')  # here\n",
    "ndarray ctypes": "def f(x):\n    x.numpy().ctypes.data_as  # here\n",
    "torch from_file": ("import torch\ndef f():\n    torch.from_file('x', shared=True, size=1)  # here\n"),
    "torch save": "import torch\ndef f(x):\n    torch.save(x, 'x')  # here\n",
    "torch storage": ("import torch\ndef f(x):\n    torch.UntypedStorage.from_file('x', True, 1)  # here\n"),
    "torch classes": ("import torch\ndef f(x):\n    torch.classes.load_library('x')  # here\n"),
    "torch ops": "import torch\ndef f(x):\n    torch.ops.load_library('x')  # here\n",
    "jit CompilationUnit": ("import torch\ndef f(x):\n    torch.jit.CompilationUnit('x')  # here\n"),
    "torch _C": "import torch\ndef f(x):\n    torch._C._jit_import('x')  # here\n",
    "torch lib": "from torch.utils.cpp_extension import load_inline  # here\n",
    "torch dist": (
        "import torch.distributed as dist\n"
        "def f():\n"
        "    dist.init_process_group('gloo', init_method='tcp://1.2.3.4:80')  # here\n"
    ),
    "torch profiler": ("import torch\ndef f():\n    torch.profiler.profile().export_chrome_trace('x')  # here\n"),
    "pandas eval": ("import pandas as pd\ndef f():\n    pd.DataFrame().eval('x')  # here\n"),
    "yaml": "import yaml\ndef f(s):\n    yaml.load(s, yaml.UnsafeLoader)  # here\n",
    "string.Formatter": (
        "import string\ndef f(x):\n    string.Formatter().get_field('0.__class__', (x,), {})  # here\n"
    ),
    "ast": ("import ast\ndef f(s):\n    return compile(ast.parse(s), '', 'exec')  # here\n"),
    "code": ("import code\ndef f():\n    code.InteractiveInterpreter().runsource('1')  # here\n"),
    "timeit": "from timeit import timeit\ndef f():\n    timeit('1')  # here\n",
    "trace": "import trace  # here\n",
    "bdb": "import bdb  # here\n",
    "unittest mock": ("from unittest import mock\ndef f():\n    mock._importer('os').system('x')  # here\n"),
    "pydoc": "import pydoc\ndef f():\n    pydoc.locate('os.system')('x')  # here\n",
    "xmlrpc": "import xmlrpc.client  # here\n",
    "asyncio": ("import asyncio\nasync def f():\n    await asyncio.create_subprocess_shell('x')  # here\n"),
    "concurrent": "from concurrent.futures import ProcessPoolExecutor  # here\n",
    "multiprocessing": "from torch import multiprocessing as mp  # here\n",
    "webbrowser": "import webbrowser  # here\n",
    "antigravity": "import antigravity  # here\n",
    "logging file": "import logging\ndef f():\n    logging.FileHandler('x')  # here\n",
    "logging basic": ("import logging\ndef f():\n    logging.basicConfig(filename='x')  # here\n"),
    "logging os": "import logging\ndef f():\n    logging.os.system('x')  # here\n",
    "collections sys": ("import collections\ndef f():\n    collections._sys.modules['os'].system('x')  # here\n"),
    "enum sys": "import enum\ndef f():\n    enum.sys.modules  # here\n",
    "random os": "import random\ndef f():\n    random._os.system('x')  # here\n",
    "dataclasses builtins": ("import dataclasses\ndef f():\n    dataclasses.builtins.exec('1')  # here\n"),
    "typing sys": "import typing\ndef f():\n    typing.sys.modules  # here\n",
    "re enum": "import re\ndef f():\n    re.enum.sys.modules['os']  # here\n",
    "copy types": "import copy\ndef f():\n    copy.types.FunctionType  # here\n",
    "warnings sys": "import warnings\ndef f():\n    warnings.sys.exit  # here\n",
    "functools import": "from functools import _thread  # here\n",
    "from abs sibling": "import helper  # here\n",
    "np lib": "import numpy\ndef f():\n    numpy.lib.npyio.os.system('x')  # here\n",
    "einops": ("import einops\ndef f():\n    einops._torch_specific.warnings.sys  # here\n"),
    "PIL eval": "from PIL import ImageMath  # here\n",
    "PIL save": ("from PIL import Image\ndef f():\n    Image.new('L', (1, 1)).save('x')  # here\n"),
    "PIL os": "from PIL import Image\ndef f():\n    Image.os.system('x')  # here\n",
    "tokenizers save": ("from tokenizers import Tokenizer\ndef f(t):\n    t.save('/x')  # here\n"),
    "timm": "import timm\ndef f():\n    timm.models._hub.torch.hub.load('x')  # here\n",
    "transformers dynamic": (
        "import transformers\n"
        "def f():\n"
        "    transformers.dynamic_module_utils.get_class_from_dynamic_module('a.b', 'x')  # here\n"
    ),
    "transformers getattribute": (
        "from transformers.models.auto.auto_factory import getattribute_from_module  # here\n"
    ),
    "transformers lazy": ("import transformers\ndef f():\n    transformers._get_module('utils')  # here\n"),
    "transformers utils os": ("import transformers\ndef f():\n    transformers.utils.hub.os.system('x')  # here\n"),
    "transformers agents": "from transformers import Trainer  # here\n",
    "transformers cached_file": "from transformers.utils import cached_file  # here\n",
    "kernels": "from transformers.integrations import get_kernel  # here\n",
    "pipeline trust": (
        "from transformers import AutoModel\ndef f(**kw):\n    return AutoModel.from_pretrained('x', **kw)  # here\n"
    ),
    "pipeline partial": (
        "import functools\n"
        "from transformers import AutoModel\n"
        "def f(o):\n"
        "    return functools.partial(AutoModel.from_pretrained, 'x')(**o)  # here\n"
    ),
    "trust dict": ("from transformers import AutoModel\no = dict(trust_remote_code=True)  # here\n"),
    "trust setitem": "def f(kwargs):\n    kwargs['trust_remote_code'] = True  # here\n",
    "auto other": (
        "from transformers import AutoModel\ndef f():\n    return AutoModel.from_pretrained('evil/repo')  # here\n"
    ),
    "from_config kw": (
        "from transformers import AutoModel\ndef f(c, o):\n    return AutoModel.from_config(c, **o)  # here\n"
    ),
    "monkeypatch": "import torch\ndef f():\n    torch.nn.Linear.forward = f  # here\n",
    "monkeypatch setattr": ("import torch\ndef f():\n    setattr(torch.nn.Linear, 'forward', f)  # here\n"),
    "delattr": "import torch\ndef f():\n    del torch.nn.Linear.forward  # here\n",
    "dict getitem": "def f():\n    return f.__globals__['x']  # here\n",
    "loader": "x = __loader__  # here\n",
    "spec": "y = __spec__.loader  # here\n",
    "builtins name": "def f():\n    return __builtins__  # here\n",
    "import hidden": "def f():\n    return (lambda n: __import__(n))('os')  # here\n",
    "codecs": "import codecs\ndef f(b):\n    codecs.open('x', 'w')  # here\n",
    "decode": "def f(b):\n    return b.decode('rot13')  # here\n",
    "sys modules": "import sys\ndef f():\n    sys.modules['os']  # here\n",
    "breakpoint": "def f():\n    breakpoint()  # here\n",
    "help": "def f():\n    help()  # here\n",
    "input": "def f():\n    input()  # here\n",
    "exit": "def f():\n    exit()  # here\n",
    "copyright": "x = copyright  # here\n",
    "license": "x = license._Printer__setup  # here\n",
    "environ": "import os\ndef f():\n    return os.environ['HF_TOKEN']  # here\n",
    "environb": "import os\ndef f():\n    return os.environb  # here\n",
    "os walk": "import os\ndef f():\n    os.kill(1, 9)  # here\n",
    "os mkfifo": "import os\ndef f():\n    os.mkfifo('x')  # here\n",
    "urllib": "from urllib import request  # here\n",
    "socket attr": "import ssl  # here\n",
    "del": ("def f(eval):\n    global compile\n    compile = 1\n    return compile('1', '', 'exec')  # here\n"),
    "nonlocal": (
        "import os\n"
        "def f():\n"
        "    g = None\n"
        "    def h():\n"
        "        nonlocal g\n"
        "        g = os.system\n"
        "    return g('x')  # here\n"
    ),
    "global bind": ("import os\ndef a():\n    global s\n    s = os.system\ndef b():\n    s('x')  # here\n"),
    "for bind": ("import os\ndef f():\n    for s in [os.system]:  # here\n        s('x')\n"),
    "with": ("import torch\ndef f(x):\n    with torch.no_grad() as torch.nn.Linear.forward: ...  # here\n"),
    "star args": "import os\ndef f():\n    print(*[os])  # here\n",
    "dict value": "import os\nD = {'a': os}  # here\n",
    "return module": "import os\ndef f():\n    return os  # here\n",
    "setattr self module": ("import os\nclass A:\n    def f(self):\n        self.o = os  # here\n"),
    "yield module": "import os\ndef f():\n    yield os  # here\n",
    "compare module": "import os\ndef f(g):\n    g[os]  # here\n",
    "vars module": "import os\ndef f():\n    vars(os)['x']  # here\n",
    "type module": "import os\ndef f():\n    type(os)  # here\n",
    "TYPE_CHECKING fake": ("TYPE_CHECKING = True\nif TYPE_CHECKING:  # here\n    import subprocess\n"),
    "TYPE_CHECKING else": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import subprocess  # here\n"
    ),
    "save_vocab abs": (
        "import os\n"
        "class T:\n"
        "    def save_vocabulary(self, d, p=None):\n"
        "        f = os.path.join(d, '/root/.bashrc')\n"
        "        with open(f, 'w') as h: ...  # here\n"
    ),
    "save_vocab up": (
        "import os\n"
        "N = {'v': '../x'}\n"
        "class T:\n"
        "    def save_vocabulary(self, d, p=None):\n"
        "        with open(os.path.join(d, N['v']), 'w') as h: ...  # here\n"
    ),
    "save_vocab rebind": (
        "import os\n"
        "class T:\n"
        "    def save_vocabulary(self, d, p=None):\n"
        "        d = '/root'\n"
        "        with open(os.path.join(d, 'x'), 'w') as h: ...  # here\n"
    ),
    "save_vocab table": (
        "import os\n"
        "N = {'v': 'x'}\n"
        "N['v'] = '/root/x'\n"
        "class T:\n"
        "    def save_vocabulary(self, d, p=None):\n"
        "        with open(os.path.join(d, N['v']), 'w') as h: ...  # here\n"
    ),
    "call save_vocab": "def f(t):\n    t.save_vocabulary('/root')  # here\n",
    "copyfile": ("from shutil import copyfile\ndef f():\n    copyfile('a', 'b')  # here\n"),
    "save_pretrained": "def f(m):\n    m.save_pretrained('/root/x')  # here\n",
    "shelve": "import dbm  # here\n",
    "csv write": "import csv\ndef f(h):\n    csv.writer(h)  # here\n",
    "zipfile": "import zipfile  # here\n",
    "plistlib": "import plistlib  # here\n",
    "cgitb": "import cgi  # here\n",
    "ctypes util": "from ctypes.util import find_library  # here\n",
    "sitecustomize": "import site  # here\n",
    "threading": ("import threading\ndef f():\n    threading.Thread(target=f).start()  # here\n"),
    "signal": "import signal  # here\n",
    "atexit": "import atexit  # here\n",
    "weakref finalize": ("import weakref\ndef f():\n    weakref.finalize(f, f)  # here\n"),
    "operator attr": ("from operator import attrgetter as a\ndef f(x):\n    return a('__class__')(x)  # here\n"),
    "methodcaller": ("import operator\ndef f(x):\n    return operator.methodcaller('x')(x)  # here\n"),
    "types func": "import types\ndef f(c):\n    types.FunctionType(c, {})  # here\n",
    "code replace": "def f():\n    f.__code__ = 1  # here\n",
    "reduce": (
        "import copy\n"
        "class R:\n"
        "    def __reduce__(self):\n"
        "        import os\n"
        "        return os.system, ('x',)  # here\n"
        "def f():\n"
        "    copy.copy(R())\n"
    ),
    "module getattr": ("import torch\ndef __getattr__(n):\n    return getattr(torch, n)  # here\n"),
    "hidden words": "x = 'ev' + 'al'  # here\n",
    "sp load": "import numpy.f2py  # here\n",
    "gradio": "import gradio  # here\n",
    "exec decorator": "@exec  # here\ndef f(): ...\n",
    "int class": "def f():\n    return int.__subclasses__()  # here\n",
    "init globals": ("import torch\ndef f():\n    return torch.nn.Linear.__init__.__globals__['os']  # here\n"),
    "func closure": "def f(g):\n    return g.__closure__[0].cell_contents  # here\n",
    "wrapped": "def f(g):\n    return g.__wrapped__.__globals__  # here\n",
    "self dunder": "def f(g):\n    return g.__self__.modules  # here\n",
    "importlib.metadata": ("import importlib.metadata as m\ndef f():\n    m.os.system('x')  # here\n"),
    "urllib.parse sys": ("from urllib import parse\ndef f():\n    parse.sys.modules['os']  # here\n"),
    "hub dataclasses": ("import huggingface_hub.dataclasses as d\ndef f():\n    d.inspect.os  # here\n"),
    "init_subclass": (
        "class G:\n"
        "    def go(self, n):\n"
        "        return getattr(self, n)\n"
        "    def __init_subclass__(cls):\n"
        "        cls.__dict__['go']((), 'x')  # here\n"
    ),
    "metaclass vars": (
        "def f():\n    class M(type):  # here\n        def m(self, n):\n            return vars(self)[n]\n"
    ),
    "computed base": "def f(g):\n    class M(g()): ...  # here\n",
    "unbound getter": (
        "class G:\n"
        "    @classmethod\n"
        "    def m(cls):\n"
        "        return super().__getattribute__((), '__class__')  # here\n"
    ),
    "getter value": ("class G:\n    def m(self):\n        return super().__getattribute__  # here\n"),
    "Module getattr": ("import torch\ndef f(x, n):\n    return torch.nn.Module.__getattr__(x, n)  # here\n"),
    "TypeVar bound": (
        "from typing import TypeVar\nT = TypeVar('T', bound='print(1)')\nclass S:\n    rows: T = 1  # here\n"
    ),
    "kernel": (
        "from transformers import AutoModel\n"
        "def f(c):\n"
        "    return AutoModel.from_config(c, attn_implementation='user/kernel')  # here\n"
    ),
    "kernel set": "def f(m):\n    m.set_attn_implementation('user/kernel')  # here\n",
    "kernel field": ("def f(config):\n    config._attn_implementation = 'user/kernel'  # here\n"),
    "custom generate": ("def f(m, x):\n    return m.generate(x, custom_generate='user/loop')  # here\n"),
    "timm checkpoint": ("import timm\ndef f(x):\n    return timm.create_model('a', checkpoint_path=x)  # here\n"),
    "singledispatch": (
        "from functools import singledispatch\n"
        "@singledispatch\n"
        "def f(x): ...\n"
        "@f.register\n"
        "def _(x: 'print(1)'): ...  # here\n"
    ),
    "class_getitem": (
        "class L:\n"
        "    def __class_getitem__(cls, x):  # here\n"
        "        return 'pri' + 'nt(1)'\n"
        "class S:\n"
        "    rows: L[int] = 1\n"
    ),
    "Literal bound twice": (
        "from typing import Literal\nLiteral = dict\nclass S:\n    rows: Literal['print(1)'] = 1  # here\n"
    ),
    "TYPE_CHECKING bound twice": (
        "from typing import TYPE_CHECKING\nTYPE_CHECKING = 1\nif TYPE_CHECKING:  # here\n    import subprocess\n"
    ),
    "property bound twice": (
        "def leak(f):\n"
        "    return f\n"
        "property = leak\n"
        "class G:\n"
        "    @property\n"
        "    def go(self, n):\n"
        "        return getattr(self, n)  # here\n"
    ),
    "hasattr bound twice": (
        "import torch\ndef hasattr(t, n):\n    return t\ndef f():\n    hasattr(torch, 'x')  # here\n"
    ),
    "join bound twice": (
        "import os\n"
        "class os:\n"
        "    class path:\n"
        "        join = print\n"
        "class T:\n"
        "    def save_vocabulary(self, d):\n"
        "        open(os.path.join(d, 'x'), 'w')  # here\n"
    ),
    "TypeVar bound twice": (
        "from typing import TypeVar\nTypeVar = str\nT = TypeVar('T')\nclass S:\n    rows: T = 1  # here\n"
    ),
    "import in a class": ("class A:\n    import os as name  # here\ndef f():\n    A.name.remove('x')\n"),
    "from import in a class": "class A:\n    from torch import nn as name  # here\n",
    "setattr dunder": "def f(k, g):\n    setattr(k, '__class_getitem__', g)  # here\n",
    "format map": ("def f(x):\n    return '{0.__class__.__init__.__globals__}'.format(x)  # here\n"),
}

# Payloads that two files share; the line is in m.py.
SHARED = {
    "sibling reexport": {
        "a.py": "import torch as t\n",
        "m.py": ("from .a import t\ndef f():\n    t.hub.load('x')  # here\n"),
    },
    "sibling chain": {
        "a.py": "import json as j\n",
        "b.py": "from .a import j\n",
        "m.py": ("from .b import j as k\ndef f():\n    k.codecs.open('x','w')  # here\n"),
    },
    "sibling module": {
        "a.py": "from torch import hub\nhub_ = 1\n",
        "m.py": ("from . import a\ndef f():\n    a.hub.load('x')  # here\n"),
    },
    "sibling star": {"a.py": "import os\n", "m.py": ("from .a import *\ndef f():\n    os.system('x')  # here\n")},
    "sibling dict": {"a.py": "import os\n", "m.py": ("from .a import __dict__ as d  # here\ndef f(k):\n    d[k]\n")},
    "sibling builtins": {"a.py": "x=1\n", "m.py": ("from .a import __builtins__ as d  # here\ndef f(k):\n    d[k]\n")},
    "sibling self module": {"a.py": "x=1\n", "m.py": ("from . import a\ndef f(k):\n    getattr(a, k)  # here\n")},
    "its own file": {"m.py": ("import os\ndef f():\n    from .m import os as o\n    o.remove('x')  # here\n")},
    "attribute of a file in an annotation": {
        "a.py": "C = 'print(1)'\n",
        "m.py": ("from . import a\nclass S:\n    rows: a.C = 1  # here\n"),
    },
    "file and folder": {
        "a.py": "x = 1\n",
        "a/__init__.py": "import os\nx = os.system\n",
        "m.py": "from .a import x  # here\n",
    },
    "whitelist": {
        "a.py": ("class X:\n    tofile = 1\n    os = 2\n    system = 3\n"),
        "m.py": ("def f(t):\n    t.numpy().tofile('x')  # here\n"),
    },
    "whitelist os": {
        "a.py": ("class X:\n    os = 2\n    system = 3\n"),
        "m.py": ("def f(t):\n    t.os.system('x')  # here\n"),
    },
    "gadget other file": {
        "a.py": ("class G:\n    def go(self, n):\n        return getattr(self, n)\n"),
        "m.py": ("from .a import G\ndef f():\n    return G.go((), 'x')  # here\n"),
    },
    "table in sibling": {
        "a.py": "N='/root/x'\n",
        "m.py": (
            "import os\n"
            "from .a import N\n"
            "class T:\n"
            "    def save_vocabulary(self, d, p=None):\n"
            "        with open(os.path.join(d, N), 'w') as h: ...  # here\n"
        ),
    },
    "alias in sibling str": {"a.py": "C='print(1)'\n", "m.py": ("from .a import C\nclass S:\n    x: C = 1  # here\n")},
}

# Custom code as the documentation of transformers shows it, and as repositories have it.
ORDINARY = {
    "resnet": {
        "configuration_resnet.py": r"""from transformers import PretrainedConfig
from typing import List


class ResnetConfig(PretrainedConfig):
    model_type = "resnet"

    def __init__(
        self,
        block_type="bottleneck",
        layers: List[int] = [3, 4, 6, 3],
        num_classes: int = 1000,
        input_channels: int = 3,
        cardinality: int = 1,
        base_width: int = 64,
        stem_width: int = 64,
        stem_type: str = "",
        avg_down: bool = False,
        **kwargs,
    ):
        if block_type not in ["basic", "bottleneck"]:
            raise ValueError(f"`block_type` must be 'basic' or bottleneck', got {block_type}.")
        if stem_type not in ["", "deep", "deep-tiered"]:
            raise ValueError(f"`stem_type` must be '', 'deep' or 'deep-tiered', got {stem_type}.")

        self.block_type = block_type
        self.layers = layers
        self.num_classes = num_classes
        self.input_channels = input_channels
        self.cardinality = cardinality
        self.base_width = base_width
        self.stem_width = stem_width
        self.stem_type = stem_type
        self.avg_down = avg_down
        super().__init__(**kwargs)
""",
        "modeling_resnet.py": r"""import torch
from transformers import PreTrainedModel
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from .configuration_resnet import ResnetConfig


BLOCK_MAPPING = {"basic": BasicBlock, "bottleneck": Bottleneck}


class ResnetModel(PreTrainedModel):
    config_class = ResnetConfig

    def __init__(self, config):
        super().__init__(config)
        block_layer = BLOCK_MAPPING[config.block_type]
        self.model = ResNet(
            block_layer,
            config.layers,
            num_classes=config.num_classes,
            in_chans=config.input_channels,
            cardinality=config.cardinality,
            base_width=config.base_width,
            stem_width=config.stem_width,
            stem_type=config.stem_type,
            avg_down=config.avg_down,
        )

    def forward(self, tensor):
        return self.model.forward_features(tensor)


class ResnetModelForImageClassification(PreTrainedModel):
    config_class = ResnetConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = ResNet(BLOCK_MAPPING[config.block_type], config.layers)

    def forward(self, tensor, labels=None):
        logits = self.model(tensor)
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}
        return {"logits": logits}


ResnetConfig.register_for_auto_class()
ResnetModel.register_for_auto_class("AutoModel")
ResnetModelForImageClassification.register_for_auto_class("AutoModelForImageClassification")
""",
    },
    "tokenizer": {
        "tokenization_chars.py": r'''"""A tokenizer of characters."""
import json
import os
from typing import Dict, List, Optional, Tuple

from transformers import PreTrainedTokenizer
from transformers.utils import logging

logger = logging.get_logger(__name__)

VOCAB_FILES_NAMES = {"vocab_file": "vocab.json"}


class CharTokenizer(PreTrainedTokenizer):
    vocab_files_names = VOCAB_FILES_NAMES
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, unk_token="[UNK]", pad_token="[PAD]", bos_token=None, **kwargs):
        with open(vocab_file, encoding="utf-8") as handle:
            self.vocab = json.load(handle)
        self.decoder = {v: k for k, v in self.vocab.items()}
        super().__init__(unk_token=unk_token, pad_token=pad_token, bos_token=bos_token, **kwargs)

    @property
    def vocab_size(self) -> int:
        return len(self.vocab)

    def get_vocab(self) -> Dict[str, int]:
        return dict(self.vocab, **self.added_tokens_encoder)

    def _tokenize(self, text: str) -> List[str]:
        return list(text.replace("\n", " "))

    def _convert_token_to_id(self, token: str) -> int:
        return self.vocab.get(token, self.vocab.get(self.unk_token))

    def _convert_id_to_token(self, index: int) -> str:
        return self.decoder.get(index, self.unk_token)

    def convert_tokens_to_string(self, tokens):
        return "".join(tokens)

    def save_vocabulary(self, save_directory: str, filename_prefix: Optional[str] = None) -> Tuple[str]:
        if not os.path.isdir(save_directory):
            logger.error(f"Vocabulary path ({save_directory}) should be a directory")
            return
        vocab_file = os.path.join(
            save_directory, (filename_prefix + "-" if filename_prefix else "") + VOCAB_FILES_NAMES["vocab_file"]
        )
        with open(vocab_file, "w", encoding="utf-8") as f:
            f.write(json.dumps(self.vocab, ensure_ascii=False))
        return (vocab_file,)
''',
    },
    "pipeline": {
        "pair_classification.py": r"""import numpy as np
from transformers import Pipeline


def softmax(outputs):
    maxes = np.max(outputs, axis=-1, keepdims=True)
    shifted_exp = np.exp(outputs - maxes)
    return shifted_exp / shifted_exp.sum(axis=-1, keepdims=True)


class PairClassificationPipeline(Pipeline):
    def _sanitize_parameters(self, **kwargs):
        preprocess_kwargs = {}
        if "second_text" in kwargs:
            preprocess_kwargs["second_text"] = kwargs["second_text"]
        return preprocess_kwargs, {}, {}

    def preprocess(self, text, second_text=None):
        return self.tokenizer(text, text_pair=second_text, return_tensors=self.framework)

    def _forward(self, model_inputs):
        return self.model(**model_inputs)

    def postprocess(self, model_outputs):
        logits = model_outputs.logits[0].numpy()
        probabilities = softmax(logits)

        best_class = np.argmax(probabilities)
        label = self.model.config.id2label[best_class]
        score = probabilities[best_class].item()
        logits = logits.tolist()
        return {"label": label, "score": score, "logits": logits}
""",
    },
    "attention": {
        "modeling_mine.py": r'''"""A decoder with its own attention."""
import math
from dataclasses import dataclass
from typing import Callable, Optional, Tuple, Union

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from transformers import PreTrainedModel, PretrainedConfig, GenerationMixin
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, apply_rotary_pos_emb, repeat_kv
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple, is_flash_attn_2_available

if is_flash_attn_2_available():
    from flash_attn import flash_attn_func
else:
    flash_attn_func = None


class MineConfig(PretrainedConfig):
    model_type = "mine"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(self, vocab_size=100, hidden_size=32, num_attention_heads=4, num_hidden_layers=2, **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_attention_heads = num_attention_heads
        self.num_hidden_layers = num_hidden_layers
        self.hidden_act = kwargs.pop("hidden_act", "silu")
        super().__init__(**kwargs)


def eager(module: nn.Module, query, key, value, attention_mask: Optional[torch.Tensor], scaling: float, **kwargs):
    weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        weights = weights + attention_mask[:, :, :, : key.shape[-2]]
    weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=kwargs.get("dropout", 0.0), training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


ALL_ATTENTION_FUNCTIONS.register("mine", eager)


class MineAttention(nn.Module):
    def __init__(self, config: MineConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
        self.scaling = self.head_dim**-0.5
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor, attention_mask=None, past_key_values=None, **kwargs):
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        query, key, value = (x.view(shape).transpose(1, 2) for x in self.qkv(hidden_states).chunk(3, dim=-1))
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attention: Callable = eager
        if self.config._attn_implementation != "eager":
            attention = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        output, weights = attention(self, query, key, value, attention_mask, scaling=self.scaling, **kwargs)
        return self.o_proj(output.reshape(*hidden_states.shape).contiguous()), weights


class MineBlock(GradientCheckpointingLayer):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.attention = MineAttention(config, layer_idx)
        self.norm = LlamaRMSNorm(config.hidden_size, eps=1e-6)
        self.act = ACT2FN[config.hidden_act]

    def forward(self, x, **kwargs):
        return x + self.act(self.attention(self.norm(x), **kwargs)[0])


class MinePreTrainedModel(PreTrainedModel):
    config_class = MineConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MineBlock"]
    _supports_sdpa = True

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(mean=0.0, std=self.config.initializer_range)
            if module.bias is not None:
                module.bias.data.zero_()


class MineModel(MinePreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList([MineBlock(config, i) for i in range(config.num_hidden_layers)])
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor = None,
        attention_mask: Optional[torch.Tensor] = None,
        past_key_values: Optional[Cache] = None,
        use_cache=None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        hidden_states = self.embed_tokens(input_ids)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        for layer in self.layers:
            hidden_states = layer(hidden_states, past_key_values=past_key_values)
        return BaseModelOutputWithPast(last_hidden_state=hidden_states, past_key_values=past_key_values)


class MineForCausalLM(MinePreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = MineModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @auto_docstring
    def forward(
        self, input_ids=None, labels=None, logits_to_keep: Union[int, torch.Tensor] = 0, **kwargs
    ) -> CausalLMOutputWithPast:
        outputs = self.model(input_ids, **kwargs)
        slice_indices = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, slice_indices, :])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=outputs.past_key_values)
''',
    },
    "wrapper": {
        "modeling_wrapper.py": r"""from __future__ import annotations
import logging
import warnings
from collections import OrderedDict
from functools import partial

import numpy as np
import torch
from einops import rearrange
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.modeling_outputs import ModelOutput, SequenceClassifierOutput

from .configuration_wrapper import WrapperConfig

logger = logging.getLogger(__name__)

try:
    from xformers.ops import memory_efficient_attention
except ImportError:
    memory_efficient_attention = None


class Wrapper(PreTrainedModel):
    config_class = WrapperConfig

    def __init__(self, config: WrapperConfig) -> None:
        super().__init__(config)
        self.backbone = AutoModel.from_config(config.backbone_config)
        size = self.backbone.config.hidden_size
        self.heads = nn.ModuleDict({name: nn.Linear(size, n) for name, n in config.heads.items()})
        self.act = partial(nn.functional.gelu, approximate="tanh")
        if memory_efficient_attention is None:
            warnings.warn("xformers is missing")
        self.register_buffer("positions", torch.arange(8), persistent=False)

    @classmethod
    def from_pretrained(cls, name, *args, **kwargs):
        return super().from_pretrained(name, *args, **kwargs)

    @torch.no_grad()
    def encode(self, texts: list[str], tokenizer, batch_size: int = 8) -> np.ndarray:
        found = []
        for start in range(0, len(texts), batch_size):
            batch = tokenizer(texts[start : start + batch_size], padding=True, return_tensors="pt").to(self.device)
            found.append(self.forward(**batch).logits.float().cpu().numpy())
        return np.concatenate(found)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None):
        hidden = self.backbone(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        pooled = rearrange(hidden.mean(dim=1), "b d -> b d")
        logits = torch.stack([head(self.act(pooled)) for head in self.heads.values()], dim=1)
        loss = nn.CrossEntropyLoss()(logits.flatten(0, 1), labels.view(-1)) if labels is not None else None
        return SequenceClassifierOutput(loss=loss, logits=logits)
""",
        "configuration_wrapper.py": r"""from typing import Any, Optional

from transformers import AutoConfig, PretrainedConfig


class WrapperConfig(PretrainedConfig):
    model_type = "wrapper"
    sub_configs = {"backbone_config": AutoConfig}

    def __init__(self, backbone_config: Optional[dict[str, Any]] = None, heads=None, **kwargs):
        backbone_config = dict(backbone_config or {"model_type": "bert"})
        self.backbone_config = AutoConfig.for_model(**backbone_config)
        self.heads = heads or {"a": 2}
        super().__init__(**kwargs)

    def to_dict(self):
        output = super().to_dict()
        output["backbone_config"] = self.backbone_config.to_dict()
        return output
""",
    },
}
