"""Tool use: declarations, requests in words, and the calls that they ask for.

parameters.py   what a parameter is: type, schema, a value, how people say it
declare.py      tools: names, descriptions, schemas
requests.py     a request for a tool: words and arguments
scenes.py       conversations: one call, a choice, two calls, results, no call
"""
