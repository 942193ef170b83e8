package audit

import (
	"context"

	"sluice/pipeline"
)

// Look is one look of an audit, without the further ones that show whether a finding goes away.
func (a *Auditor) Look(ctx context.Context, sale *pipeline.Sale) (*Report, error) {
	seen, err := a.look(ctx, sale, false)
	if err != nil {
		return nil, err
	}
	return seen.report, nil
}
