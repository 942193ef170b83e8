package journal

import "sluice/pipeline"

// chunkSize is how many accepts of a sale on a partition are submitted to Redis together: one question to Postgres, and
// some calls of the script.
const chunkSize = 1000

// InChunks collects the batches that read calls its argument with, by sale and partition, and calls do for some 1,000
// accepts at a time, and for what is left at the end. Errors: those of read and of do, which end it.
func InChunks(
	read func(each func(pipeline.SalePartition, []pipeline.Accept) error) error,
	do func(pipeline.SalePartition, []pipeline.Accept) error,
) error {
	waiting := map[pipeline.SalePartition][]pipeline.Accept{}
	err := read(func(at pipeline.SalePartition, accepts []pipeline.Accept) error {
		waiting[at] = append(waiting[at], accepts...)
		if len(waiting[at]) < chunkSize {
			return nil
		}
		chunk := waiting[at]
		delete(waiting, at)
		return do(at, chunk)
	})
	if err != nil {
		return err
	}
	for at, rest := range waiting {
		if err := do(at, rest); err != nil {
			return err
		}
	}
	return nil
}
