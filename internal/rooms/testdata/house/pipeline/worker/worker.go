package worker

import "house/pipeline"

var Name = pipeline.Default.ID
