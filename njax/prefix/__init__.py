"""Cross-request prefix seeding: reuse of the state that another request's prefill produced.

`identity` names a prefix (a hash chain over blocks), `seeds` keeps snapshots under those names,
`planner` decides where a prompt's prefill starts, how it is cut and what is captured on the way.
Nothing here touches a device.
"""
