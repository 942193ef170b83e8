package pipelinetest

// Count is the value of a counter or gauge, or how often a histogram was fed, summed over its series.
func (r *Rig) Count(metric string) float64 {
	r.Helper()
	return r.sumSeries(metric, "", "")
}

// Labelled is Count for the series with one value of one label.
func (r *Rig) Labelled(metric, label, value string) float64 {
	r.Helper()
	return r.sumSeries(metric, label, value)
}

// sumSeries sums the series of a metric that have this label, or all of them where the label is empty.
func (r *Rig) sumSeries(metric, label, value string) float64 {
	r.Helper()
	families, err := r.Registry.Gather()
	if err != nil {
		r.Fatalf("gather metrics: %v", err)
	}
	var sum float64
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			counts := label == ""
			for _, l := range m.GetLabel() {
				counts = counts || l.GetName() == label && l.GetValue() == value
			}
			if counts {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
