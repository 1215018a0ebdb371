"""OpenAI Responses: a conversation as a list of items, kept by the server if the client likes.

- `request`: the wire type and what it means; `items`: conversations as items and as messages;
  `tools`: declarations and the choice among them.
- `output`: the items of an answer as they grow; `answer`: whole, or as events.
- `body`: the response object; `store`: responses that can be asked for later; `background`: those
  that go on when nobody waits.
"""
