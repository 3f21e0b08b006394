"""Omni-modality serving: stages in processes, realtime speech in front."""
