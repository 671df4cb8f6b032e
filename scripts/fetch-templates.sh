#!/usr/bin/env bash
# Fetches the chat templates of the golden tests into .cache/templates.
exec python3 "$(dirname "$0")/fetch-templates.py"
