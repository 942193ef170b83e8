package pipeline_test

import (
	"testing"

	"sluice/pipeline"
	"sluice/internal/testkit"
)

func TestZZ(t *testing.T) {
	r := newRig(t, rigOptions{})
	p := through(t, redisURL(r))
	c := testkit.Client(t, p.URL())
	c.Ping(r.ctx())
	t.Log(p.Connections(), c.PoolStats().TotalConns)
	r.admission = r.newAdmission(c, pipeline.AdmissionOptions{})
	r.admit("first", 1)
	t.Log(p.Connections(), c.PoolStats().TotalConns)
	l, _ := r.rdb.ClientList(r.ctx()).Result()
	t.Log(l)
}
