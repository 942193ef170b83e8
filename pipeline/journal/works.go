package journal

import "sluice/pipeline"

// Works returns nil while what is appended goes to the disk, or while no directory was asked for. It tells of the last
// write, and tries none. Errors: KindUnavailable.
func (j *Journal) Works() error {
	if err := j.lock(); err != nil {
		return err
	}
	defer j.mu.Unlock()
	if j.down {
		return pipeline.Errorf(pipeline.KindUnavailable,
			"the accept journal can't be written: orders are taken, and receipts say that they are not in it")
	}
	return nil
}
