"""Results as metrics in an experiment tracker: wandb, TensorBoard or MLflow.

`metrics_of` names them (`brace/<result>/<field>`, each at its trainer step); `open_sink` opens
where they go. The trackers are extras: nothing here imports one before it is asked for.
"""
