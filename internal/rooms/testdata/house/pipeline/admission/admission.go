package admission

import "house/pipeline"

var Limit = pipeline.Limit
