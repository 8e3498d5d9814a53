package resource

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestCheck is the table of amounts: which are refused, and what those that are refused read as.
func TestCheck(t *testing.T) {
	for sentence, c := range map[string]struct {
		name   v1.ResourceName
		amount string
		want   string // empty if it is not refused
		reads  int64
	}{
		"nothing":                              {"cpu", "0", "", 0},
		"a tiny part counts as the least":      {"cpu", "1n", "", 1},
		"also of bytes":                        {"memory", "1n", "", 1},
		"a part of a CPU":                      {"cpu", "500m", "", 500},
		"a part of a device":                   {gpu, "500m", "spec.x[nvidia.com/gpu] is 500m: want a whole number", 1},
		"a part of a pod":                      {"pods", "1500m", "spec.x[pods] is 1500m: want a whole number", 2},
		"less than nothing":                    {"cpu", "-1", "spec.x[cpu] is -1: want 0 or more", 0},
		"the most CPUs":                        {"cpu", "1P", "", MaxOfAll},
		"one thousandth more":                  {"cpu", "1000000000000000001m", "spec.x[cpu] is 1000000000000000001m: want at most 1P", 0},
		"the most memory":                      {"memory", "1E", "", MaxOfAll},
		"one byte more":                        {"memory", "1000000000000000001", "spec.x[memory] is 1000000000000000001: want at most 1E", 0},
		"2^62 bytes":                           {"memory", "4Ei", "spec.x[memory] is 4Ei: want at most 1E", 0},
		"all that an int64 holds":              {gpu, "9223372036854775807", "spec.x[nvidia.com/gpu] is 9223372036854775807: want at most 1E", 0},
		"more than that":                       {"cpu", "1e30", "spec.x[cpu] is 1e30: want at most 1P", 0},
		"more digits than a machine can count": {"cpu", "1e1000000000", "spec.x[cpu] is more than 1e100: want at most 1P", 0},
		"digits that take minutes to write":    {"cpu", "12345678901234567890e1000000", "spec.x[cpu] is more than 1e100: want at most 1P", 0},
		"as many, less than nothing":           {"cpu", "-12345678901234567890e1000000", "spec.x[cpu] is less than -1e100: want 0 or more", 0},
		"nothing, with many digits":            {gpu, "0e10000000", "", 0},
		"the most devices":                     {gpu, "1E", "", MaxOfAll},
		"much less than nothing":               {"cpu", "-1e30", "spec.x[cpu] is -1e30: want 0 or more", 0},
		"a name with a space":                  {"a b", "1", `spec.x["a b"]: want the name of a resource, such as cpu or example.com/device`, 1},
		"a name that would colour a terminal":  {"\x1b[31mred", "1", `spec.x["\x1b[31mred"]: want the name of a resource, such as cpu or example.com/device`, 1},
		"no name":                              {"", "1", `spec.x[""]: want the name of a resource, such as cpu or example.com/device`, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			list := v1.ResourceList{c.name: resource.MustParse(c.amount)}
			got := ""
			if fault := Check("spec.x", list, MaxOfAll); fault != nil {
				got = fault.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := FromList(list)[c.name]; got != c.reads {
				t.Errorf("it reads as %d, want %d", got, c.reads)
			}
		})
	}
}

func TestCheckPod(t *testing.T) {
	asks := func(amount string) v1.Container {
		return v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(amount)}}}
	}
	for sentence, c := range map[string]struct {
		spec v1.PodSpec
		want string
	}{
		"nothing":              {v1.PodSpec{}, ""},
		"what a machine has":   {v1.PodSpec{Containers: []v1.Container{asks("24Ti")}, InitContainers: []v1.Container{asks("1")}}, ""},
		"the most":             {v1.PodSpec{Containers: []v1.Container{asks("1P")}}, ""},
		"more in a container":  {v1.PodSpec{Containers: []v1.Container{asks("1"), asks("1Pi")}}, "spec.containers[1].resources.requests[memory] is 1Pi: want at most 1P"},
		"an init container":    {v1.PodSpec{InitContainers: []v1.Container{asks("1e30")}}, "spec.initContainers[0].resources.requests[memory] is 1e30: want at most 1P"},
		"more in all":          {v1.PodSpec{Containers: []v1.Container{asks("600T"), asks("600T")}}, "the sum of spec.containers[*].resources.requests[memory] is 1200T: want at most 1P"},
		"less than nothing":    {v1.PodSpec{Containers: []v1.Container{asks("-1")}}, "spec.containers[0].resources.requests[memory] is -1: want 0 or more"},
		"overhead":             {v1.PodSpec{Overhead: v1.ResourceList{"cpu": resource.MustParse("2T")}}, "spec.overhead[cpu] is 2T: want at most 1T"},
		"asked for by the pod": {v1.PodSpec{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1e30")}}}, "spec.resources.requests[cpu] is 1e30: want at most 1T"},
		"a pod that has a node counts by what it can have": {v1.PodSpec{NodeName: "n", Containers: []v1.Container{asks("1e30")}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod, got := &v1.Pod{Spec: c.spec}, ""
			if fault := CheckPod(pod); fault != nil {
				got = fault.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if amount := OfPod(pod)[v1.ResourceMemory]; amount < 0 || amount > MaxOfOne {
				t.Errorf("it counts as %d bytes", amount)
			}
		})
	}
}

// Sums of more objects than any cluster has do not overflow.
func TestRoom(t *testing.T) {
	if most := math.MaxInt64 / MaxOfOne; most < 9000 {
		t.Errorf("an int64 holds what %d nodes may have", most)
	}
}

func TestOfNode(t *testing.T) {
	node := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{"cpu": resource.MustParse("64"), "memory": resource.MustParse("1e30"), gpu: resource.MustParse("8")}}}
	if diff := cmp.Diff(Vector{"cpu": 64000, gpu: 8}, OfNode(node)); diff != "" {
		t.Errorf("what it has (-want +got):\n%s", diff)
	}
}

func TestPlusAndTimes(t *testing.T) {
	for sentence, c := range map[string]struct{ got, want int64 }{
		"small amounts add up":       {Plus(2, 3), 5},
		"large ones are the most":    {Plus(MaxOfAll, 1), MaxOfAll},
		"what an int64 holds is":     {Plus(math.MaxInt64, math.MaxInt64), MaxOfAll},
		"a few times a small amount": {Times(3, 4), 12},
		"no times":                   {Times(MaxOfOne, 0), 0},
		"too often":                  {Times(MaxOfOne, math.MaxInt32), MaxOfAll},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", sentence, c.got, c.want)
		}
	}
}
