package resource

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
)

const gpu v1.ResourceName = "nvidia.com/gpu"

func TestAdd(t *testing.T) {
	for sentence, c := range map[string]struct {
		to, other Vector
		n         int64
		want      Vector
	}{
		"amounts add up, resource by resource": {Vector{v1.ResourceCPU: 500, gpu: 1}, Vector{gpu: 2, v1.ResourceMemory: 7}, 1, Vector{v1.ResourceCPU: 500, gpu: 3, v1.ResourceMemory: 7}},
		"several times":                        {Vector{gpu: 1}, Vector{gpu: 2}, 3, Vector{gpu: 7}},
		"taken back":                           {Vector{gpu: 5}, Vector{gpu: 2}, -2, Vector{gpu: 1}},
		"below zero":                           {Vector{gpu: 1}, Vector{gpu: 2}, -1, Vector{gpu: -1}},
		"no times":                             {Vector{gpu: 1}, Vector{gpu: math.MaxInt64}, 0, Vector{gpu: 1}},
	} {
		t.Run(sentence, func(t *testing.T) {
			c.to.Add(c.other, c.n)
			if diff := cmp.Diff(c.want, c.to); diff != "" {
				t.Errorf("sum (-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzAdd adds any amounts any number of times, and takes them away in another order: nothing is left.
func FuzzAdd(f *testing.F) {
	edges := []int64{0, 1, -1, 3, math.MaxInt64, math.MinInt64, math.MinInt64 + 1, 1 << 62, -1 << 62, 1<<62 + 511, 3037000500}
	for _, a := range edges {
		for _, b := range edges {
			for _, n := range edges {
				f.Add(a, b, n)
			}
		}
	}
	f.Fuzz(func(t *testing.T, a, b, n int64) {
		type step struct {
			amount Vector
			n      int64
		}
		steps := []step{{Vector{gpu: a}, 1}, {Vector{gpu: a, v1.ResourceCPU: b}, n}, {Vector{gpu: b}, n}, {Vector{gpu: a}, 1}, {Vector{gpu: b, v1.ResourceCPU: a}, 2}}
		sum := Vector{}
		for _, one := range steps {
			sum.Add(one.amount, one.n)
		}
		for i := range steps {
			one := steps[(i*3+1)%len(steps)]
			sum.Add(one.amount, -one.n)
		}
		if !sum.Zero() {
			t.Errorf("%d, %d, %d times: %v is left", a, b, n, sum)
		}
	})
}

func TestString(t *testing.T) {
	for sentence, c := range map[string]struct {
		v    Vector
		want string
	}{
		"nothing":                     {nil, ""},
		"what is 0 is left out":       {Vector{v1.ResourceCPU: 0, gpu: 1}, "1 nvidia.com/gpu"},
		"CPU is in thousandths":       {Vector{v1.ResourceCPU: 500}, "500m cpu"},
		"whole CPUs":                  {Vector{v1.ResourceCPU: 32000}, "32 cpu"},
		"bytes":                       {Vector{v1.ResourceMemory: 16 << 30}, "16Gi memory"},
		"bytes of disk":               {Vector{v1.ResourceEphemeralStorage: 1500}, "1500 ephemeral-storage"},
		"bytes of huge pages":         {Vector{"hugepages-2Mi": 64 << 20}, "64Mi hugepages-2Mi"},
		"devices":                     {Vector{gpu: 16}, "16 nvidia.com/gpu"},
		"sorted by name":              {Vector{gpu: 1, v1.ResourceCPU: 1000, v1.ResourceMemory: 1 << 20}, "1 cpu, 1Mi memory, 1 nvidia.com/gpu"},
		"what is missing is negative": {Vector{gpu: -2}, "-2 nvidia.com/gpu"},
		"pods":                        {Vector{v1.ResourcePods: 3}, "3 pods"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := c.v.String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestZero(t *testing.T) {
	for sentence, c := range map[string]struct {
		v    Vector
		want bool
	}{
		"nil is":                  {nil, true},
		"all 0 is":                {Vector{gpu: 0, v1.ResourceCPU: 0}, true},
		"an amount is not":        {Vector{gpu: 0, v1.ResourceCPU: 1}, false},
		"a negative amount isn't": {Vector{gpu: -1}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := c.v.Zero(); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// What the API writes reads the same, however it was written before.
func TestList(t *testing.T) {
	for sentence, c := range map[string]struct {
		list v1.ResourceList
		want map[v1.ResourceName]string
	}{
		"cpu in thousandths": {v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("1500m")}, map[v1.ResourceName]string{v1.ResourceCPU: "1500m"}},
		"in whole cores":     {v1.ResourceList{v1.ResourceCPU: apiresource.MustParse("2000m")}, map[v1.ResourceName]string{v1.ResourceCPU: "2"}},
		"memory":             {v1.ResourceList{v1.ResourceMemory: apiresource.MustParse("1048576Ki")}, map[v1.ResourceName]string{v1.ResourceMemory: "1Gi"}},
		"0 is left out":      {v1.ResourceList{gpu: apiresource.MustParse("0")}, map[v1.ResourceName]string{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := map[v1.ResourceName]string{}
			for name, quantity := range FromList(c.list).List() {
				got[name] = quantity.String()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("list (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAddTo: sums by key have no key of which nothing is left.
func TestAddTo(t *testing.T) {
	sums := map[string]Vector{}
	AddTo(sums, "a", Vector{"x": 2, "y": 1}, 2)
	AddTo(sums, "b", Vector{"x": 1}, 1)
	AddTo(sums, "a", Vector{"x": 4, "y": 2}, -1)
	if a, known := sums["a"]; known || len(sums) != 1 || sums["b"]["x"] != 1 {
		t.Errorf("sums are %v, with %v under a; want that only b has something", sums, a)
	}
}
