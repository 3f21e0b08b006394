"""The realtime protocol: a pure core (parse, session settings, translate) and a thin WebSocket driver around it."""
