package main

import (
	"context"

	"sluice/lua/functions"
	"sluice/pipeline"
)

type functionsCmd struct {
	Load functionsLoad `cmd:"" help:"Load the functions of this build, beside those of others. Run it before the programs of a new build start."`
}

type functionsLoad struct {
	Prune bool `help:"Remove the functions of all other builds, once none of their programs runs."`
}

// Run loads the functions on every master. Nothing else of Redis is looked at: it may be a new one.
func (c *functionsLoad) Run(a *app) error {
	return a.connected(func(s *stores) error {
		ctx, cancel := context.WithTimeout(a.ctx, commandTimeout)
		defer cancel()
		if err := functions.Load(ctx, s.redis); err != nil {
			return pipeline.Wrap(pipeline.KindUnavailable, err, "the functions can't be loaded")
		}
		pruned := 0
		if c.Prune {
			var err error
			if pruned, err = functions.Prune(ctx, s.redis); err != nil {
				return pipeline.Wrap(pipeline.KindUnavailable, err, "the functions of other builds can't be removed")
			}
		}
		return a.answer(map[string]any{"library": functions.Name(), "pruned": pruned},
			"The functions of this build are loaded (%s); %d other libraries were removed.", functions.Name(), pruned)
	})
}
