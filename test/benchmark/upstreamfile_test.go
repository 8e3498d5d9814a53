package main

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
)

// TestUpstreamFiles: every workload of gangs that scheduler_perf measures can be made from its files.
func TestUpstreamFiles(t *testing.T) {
	cases, err := upstreamCases()
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	for _, c := range cases {
		for i := range c.Workloads {
			w := &c.Workloads[i]
			if !slices.Contains(w.Labels, upstreamLabel) {
				continue
			}
			measured++
			for j := range c.WorkloadTemplate {
				s := &c.WorkloadTemplate[j]
				if n, err := w.count(s); err != nil || n < 1 {
					t.Errorf("%s/%s: %s makes %d objects: %v", c.Name, w.Name, s.Opcode, n, err)
				}
				makeFirst(t, c, w, s)
			}
		}
	}
	if measured < 18 {
		t.Errorf("found %d workloads, want 18 or more", measured)
	}
}

// makeFirst makes the first object of a step.
func makeFirst(t *testing.T, c upstreamCase, w *upstreamWorkload, s *upstreamStep) {
	t.Helper()
	var path string
	var into any
	switch s.Opcode {
	case "createNamespaces":
		return
	case "createNodes":
		path, into = s.NodeTemplatePath, &v1.Node{}
		if path == "" {
			path = c.defaultNode
		}
	case "createPodGroups":
		path, into = s.TemplatePath, &schedulingv1beta1.PodGroup{}
	case "createPods":
		path, into = s.PodTemplatePath, &v1.Pod{}
	default:
		t.Errorf("%s: the operation %q is not known", c.Name, s.Opcode)
		return
	}
	made, err := c.objects(w, s, path)
	if err == nil {
		err = made.read(0, into)
	}
	if err != nil {
		t.Errorf("%s/%s: %v", c.Name, w.Name, err)
	}
}
