# Two commands matter: `make book` and `make test`. Both do their own set-up. `make help` lists the rest,
# `make -C exercises` the instructor's.
SHELL := /bin/sh
.DEFAULT_GOAL := help
# Two builds in _build at a time would spoil each other.
.NOTPARALLEL:
.PHONY: help setup setup-site pins proofread repository book test lint unit coverage quick check check-widget check-chapter notebooks site execute widgets api heads number record bench bench-quick bench-gpu bench-floors gettext catalogues book-in pdf-in editions linkcheck pdf epub fresh release serve lab test-gpu test-colab test-translation test-browser test-elsewhere test-perturbed test-exercises clean always

PY := .venv/bin/python
NOTEBOOKS := $(wildcard chapters/*.ipynb)
# Which notebooks `make execute` runs, which scripts `make record` and which cases `make bench`; all unless named.
CHAPTERS ?= $(NOTEBOOKS)
RUNS ?=
BENCH ?=
THREADS ?= 1
PORT ?= 8000
# Two processes of one thread each. What needs a browser, a GPU or the built site has commands of its own.
UNIT := $(PY) -m pytest -q -n 2 -m "not browser and not gpu"
UNIT_TESTS := $(filter-out tests/__pycache__/ tests/book/ tests/browser/ tests/exercises/ tests/translation/,$(sort $(wildcard tests/*/))) $(wildcard tests/test_*.py)
# As which other machines `make test-elsewhere` tests, one after another; and how this one passes for them.
ELSEWHERE ?= oldest avx2 threads
AS_oldest := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE
AS_avx2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2
AS_threads := OMP_NUM_THREADS=2
# From which other starts `make test-perturbed` trains: the same parameters with noise, or those of other seeds.
PERTURBED ?= noise:1 noise:2 noise:3 seed:1 seed:2 seed:3 seed:4 seed:5
# For translations: which language, and where its catalogues are.
LANGUAGE ?=
LANGUAGES := $(notdir $(wildcard locale/*))
LOCALE ?= locale
# Jupyter must find the kernel of .venv before any that the user has.
export JUPYTER_PREFER_ENV_PATH := 1
export PYTHON

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

setup:
	@sh website/setup.sh

setup-site:
	@sh website/setup.sh site

# Where no file is newer than the last build, there is nothing to do. Without git nobody says which files there are.
SOURCES := $(wildcard $(shell git ls-files -co --exclude-standard -- . ":!tests" ":!locale" ":!exercises" 2>/dev/null))
book: setup-site _build/html/.built  ## build the book into _build/html, warnings as errors
	@echo "The book: file://$(CURDIR)/_build/html/index.html (or: make serve)"

# Sphinx copies styles and scripts only when it writes a page, so a change of these asks for all pages; and the first
# page holds a widget.
_build/html/.built: $(or $(SOURCES),always) | setup-site
	@[ -z "$$(find website/css website/js website/templates website/site_extension.py website/take_away.py website/ways.py website/chapter_map.py attn_book/widgets -newer _build/html/index.html 2>&1)" ] || rm -rf _build/.doctrees
	@$(PY) website/vendor_mathjax.py
	@.venv/bin/jupyter-book build . -n -W --keep-going -q >/dev/null || { rm -rf _build/.doctrees; exit 1; }
	@touch $@

test: setup lint unit notebooks book site  ## lint, unit tests, every notebook, the built site

lint: setup  ## ruff and mypy
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy

unit: setup
	OMP_NUM_THREADS=1 $(UNIT) $(UNIT_TESTS)

coverage: setup  ## the same tests, and how much of the package they run
	@$(PY) -m coverage erase
	OMP_NUM_THREADS=1 $(subst pytest,coverage run -m pytest,$(UNIT)) $(UNIT_TESTS)
	@$(PY) -m coverage combine -q
	@$(PY) -m coverage report

# Of the core alone; what needs a process of its own, a compiler or long sequences is left to `make test`.
QUICK := not interpreter and not compile and not peak_memory and not long_and_odd and not estimate
quick: lint  ## lint and the core's own tests, in a minute
	OMP_NUM_THREADS=1 $(UNIT) -k "$(QUICK)" tests/mechanisms tests/seq2seq tests/transformer \
		$(patsubst %,tests/test_%.py,capture decode delta_net latent longformer masks multi_head positions sampling scores)

check: lint  ## what the author of a mechanism runs (NAME=window)
	$(if $(wildcard attn_core/mechanisms/$(NAME).py),,$(error NAME: expected a file of attn_core/mechanisms, as NAME=window, got "$(NAME)"))
	OMP_NUM_THREADS=1 $(UNIT) -k "$(NAME) or $(subst _,,$(NAME)) or table or test_api" \
		tests/mechanisms tests/properties tests/hostile tests/test_package.py tests/book/test_api.py

check-widget: lint  ## what the author of a widget runs (NAME=heatmap), in Chromium and without a built site
	$(if $(wildcard attn_book/widgets/$(NAME).css),,$(error NAME: expected a widget of attn_book/widgets, as NAME=heatmap, got "$(NAME)"))
	@sh website/browser.sh
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 -k "$(NAME) or $(subst _,,$(NAME))" tests/widgets tests/book/test_stored_widgets.py \
		tests/browser/test_widgets.py tests/browser/test_translated_widgets.py tests/browser/test_markup.py $(wildcard tests/browser/test_$(NAME)*.py)

# The slowest cell takes about a minute on a quiet machine.
NBVAL := $(PY) -m pytest -q -n 2 --dist loadfile -W default --nbval --nbval-kernel-name python3 --nbval-cell-timeout 1200 \
	--nbval-sanitize-with tests/book/sanitize.cfg

check-chapter: lint  ## what the author of a chapter runs (NAME=01_pooling), without a built site
	$(if $(wildcard chapters/$(NAME).ipynb),,$(error NAME: expected a notebook of chapters, as NAME=01_pooling, got "$(NAME)"))
	OMP_NUM_THREADS=1 $(NBVAL) chapters/$(NAME).ipynb
	$(PY) -m pytest -q -k "$(NAME)" tests/book/test_notebooks.py tests/book/test_quizzes.py tests/book/test_stored_widgets.py

notebooks: setup
	OMP_NUM_THREADS=1 $(NBVAL) $(NOTEBOOKS)

test-elsewhere: $(ELSEWHERE:%=elsewhere-%)  ## every notebook and the numeric tests as on other machines (ELSEWHERE="avx2")

elsewhere-%: setup
	$(if $(AS_$*),,$(error ELSEWHERE: expected oldest, avx2 or threads, got $*))
	OMP_NUM_THREADS=1 $(AS_$*) $(NBVAL) $(NOTEBOOKS)
	OMP_NUM_THREADS=1 $(AS_$*) $(UNIT) $(filter-out tests/benchmarks/ tests/recorded/ tests/widgets/,$(UNIT_TESTS))

# With other seeds, outputs differ as they may, and only a cell that fails counts.
test-perturbed: setup  ## every notebook, its trainings begun from other parameters (PERTURBED="noise:1 seed:1")
	@for start in $(PERTURBED); do \
		case $$start in noise:*) kind=--nbval ;; *) kind=--nbval-lax ;; esac; \
		echo "PERTURB=$$start"; \
		PERTURB=$$start PYTHONPATH="$(CURDIR)/tests/perturbed" OMP_NUM_THREADS=1 $(subst --nbval --,$$kind --,$(NBVAL)) $(NOTEBOOKS) || exit 1; \
	done

site: setup book
	$(PY) -m pytest -q -n 2 tests/book

# What is pinned stays, unless pyproject.toml's ranges or UPGRADE="--upgrade" ask for another version.
UPGRADE ?=
pins: setup  ## compile requirements.txt from pyproject.toml (UPGRADE="--upgrade-package ruff")
	@[ -x _build/uv/bin/uv ] || $(PY) -m pip install --quiet --target _build/uv uv
	@_build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --all-extras pyproject.toml $(UPGRADE) \
		--constraints requirements/held.txt --excludes requirements/left_out.txt --annotation-style line \
		--custom-compile-command "make pins" --output-file requirements.txt

# French words are among what it would list, so some are left out, and it only advises.
proofread: setup  ## list likely misspellings of pages and documents
	-@.venv/bin/codespell -L aer,couldn,fro,hist,mange,manger,meaned,rouge,sais,ser,siz,te,ons,ot,attendent,nd,fo \
		--ignore-regex '^.{1500,}$$|<[^>]*>|[A-Za-z0-9+/=]{40,}|\\u[0-9a-f]{4}' *.md */*.md chapters/*.ipynb

execute: setup  ## re-run the notebooks in place (CHAPTERS="chapters/02_bahdanau.ipynb")
	$(PY) website/execute.py $(CHAPTERS)

widgets: setup  ## put today's scripts, styles and new traits into the notebooks' widgets, running nothing
	@$(PY) website/widgets.py

api: setup  ## write the page of public names
	@$(PY) website/api.py

# The instructors' page adds these times up.
heads: setup  ## write into each chapter's opening how long it takes
	@$(PY) website/page_heads.py
	@$(PY) website/execute.py chapters/instructors.ipynb

repository: setup  ## give a fork its own address everywhere (URL=https://github.com/OWNER/NAME)
	@$(PY) website/repository.py "$(URL)"

number: setup  ## number the chapters as _toc.yml lists them, files and mentions
	@$(PY) website/number.py

record: setup  ## re-run the long experiments (RUNS="context" for some of them)
	$(PY) recorded/run.py $(RUNS)

bench: setup  ## measure us beside d2l and PyTorch (BENCH="dense" for some cases, THREADS=2)
	@$(PY) -m benchmarks.run --threads $(THREADS) $(BENCH)

bench-quick: setup  ## the same at tiny sizes: does it run, has no ratio fallen below its floor?
	@$(PY) -m benchmarks.run --quick --threads $(THREADS) $(BENCH)
	@$(PY) -m benchmarks.import_time

OUT ?= _build/gpu
bench-gpu: setup  ## everything that is measured on a GPU, within eight minutes (OUT=folder)
	@$(PY) -m benchmarks.gpu --out "$(OUT)"

bench-floors: setup  ## record these floors, on a machine that does nothing else
	@$(PY) -m benchmarks.run --floors --threads $(THREADS) $(BENCH)

gettext: setup-site  ## every sentence of the book, for translators, into _build/gettext
	@$(PY) website/vendor_mathjax.py
	@rm -rf _build/words _build/gettext
	@.venv/bin/jupyter-book build . --path-output _build/words --builder custom --custom-builder gettext -n -W --keep-going -q >/dev/null
	@cp -r _build/words/_build/gettext _build/gettext && rm -rf _build/gettext/_static
	@$(PY) website/translation.py extract --templates _build/gettext

catalogues: gettext  ## bring the catalogues of a language up to date and say what is left (LANGUAGE=zh_CN)
	@$(PY) website/translation.py update --language $(LANGUAGE)

book-in: setup-site  ## the book in another language, from locale/ (LANGUAGE=fr)
	@$(PY) website/vendor_mathjax.py
	@mkdir -p _build/$(LANGUAGE)
	@$(PY) website/translation.py configure --locale $(LOCALE) --language $(LANGUAGE) >_build/$(LANGUAGE)/_config.yml
	@.venv/bin/jupyter-book build . --config _build/$(LANGUAGE)/_config.yml --path-output _build/$(LANGUAGE) --all -n -W --keep-going -q >/dev/null
	@echo "The book: file://$(CURDIR)/_build/$(LANGUAGE)/_build/html/index.html"

pdf-in: setup  ## print the book in another language (LANGUAGE=fr)
	@sh website/browser.sh
	@$(PY) website/vendor_mathjax.py
	@mkdir -p _build/$(LANGUAGE)
	@$(PY) website/translation.py configure --locale $(LOCALE) --language $(LANGUAGE) >_build/$(LANGUAGE)/_config.yml
	@.venv/bin/jupyter-book build . --config _build/$(LANGUAGE)/_config.yml --path-output _build/$(LANGUAGE) --builder singlehtml --all -n -W --keep-going -q >/dev/null
	@$(PY) website/pdf.py $(CURDIR)/_build/$(LANGUAGE)/_build/singlehtml/index.html _build/attention-book-$(LANGUAGE).pdf

editions: book book-in  ## English and another language as one site, from page to page linked (LANGUAGE=zh_CN)
	@$(PY) website/editions.py $(LANGUAGE)

test-translation: setup gettext  ## a made-up language, in which nothing may be left in English
	@rm -rf _build/locale/xx
	@$(PY) website/translation.py pseudo --templates _build/gettext --locale _build/locale
	@$(MAKE) --no-print-directory book-in LANGUAGE=xx LOCALE=_build/locale
	$(PY) -m pytest -q tests/translation
	@for language in $(LANGUAGES); do \
		$(PY) website/translation.py update --language $$language && $(MAKE) --no-print-directory book-in LANGUAGE=$$language || exit 1; \
	done

linkcheck: setup-site  ## follow every link that leaves the site
	@.venv/bin/jupyter-book build . --builder linkcheck -q

pdf: setup  ## print the whole book into _build (needs Chromium)
	@sh website/browser.sh
	@$(PY) website/vendor_mathjax.py
	@.venv/bin/jupyter-book build . --builder singlehtml -n -W --keep-going -q >/dev/null || { rm -rf _build/.doctrees; exit 1; }
	@$(PY) website/pdf.py

epub: setup book  ## the built site as an EPUB into _build (needs Chromium)
	@sh website/browser.sh
	@$(PY) -m website.epub

# Sphinx leaves pages that are no more.
fresh:
	@rm -rf _build/html _build/singlehtml _build/.doctrees

# No language is published that is not whole.
release: setup fresh book pdf epub gettext  ## zip of the site, wheel, PDF, EPUB, checksums, into _build/release; all editions with links to them
	@$(PY) website/release.py
	@for language in $(LANGUAGES); do \
		$(PY) website/translation.py update --whole --language $$language && $(MAKE) --no-print-directory book-in LANGUAGE=$$language || exit 1; \
	done
	@$(PY) website/editions.py $(LANGUAGES)

serve: book  ## build, then serve the book on this machine (PORT=8000)
	@echo "http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)"
	@$(PY) -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

lab: setup  ## open the chapters in JupyterLab
	@$(PY) -m jupyterlab chapters

test-gpu: setup  ## the tests that need a CUDA device
	@$(PY) -c 'import sys, torch; torch.cuda.is_available() or sys.exit("make: torch finds no CUDA device here, and these tests need one.")'
	$(PY) -m pytest -q -m gpu tests

test-colab: setup  ## every notebook beside Colab's versions of everything but torch, one with its widgets in a browser
	@sh website/colab.sh
	@PYDEVD_DISABLE_FILE_VALIDATION=1 OMP_NUM_THREADS=1 .colab/bin/python website/colab.py $(CHAPTERS)
	@sh website/browser.sh
	$(PY) -m pytest -q -m browser tests/browser/colab_widgets.py

test-browser: setup book  ## the pages in Chromium and in Firefox, with the network blocked
	@sh website/browser.sh firefox
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist worksteal -m browser tests/browser

# nbgrader calls a program that lies beside it; and a submission gets one thread.
test-exercises: setup  ## the instructor's kit: right, wrong and hostile submissions (needs bubblewrap)
	@sh exercises/setup.sh
	PATH="$(CURDIR)/.venv/bin:$$PATH" OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile tests/exercises

clean:  ## remove what was built, and .venv
	rm -rf .venv .colab _build website/vendor .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* *.egg-info
