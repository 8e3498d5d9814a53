package turns

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

func TestShapes(t *testing.T) {
	gpus := func(n int64) resource.Vector { return resource.Vector{"gpu": n} }
	for sentence, c := range map[string]struct {
		one, other Shape
		want       bool
	}{
		"the same":                          {Shape{1, 2, gpus(1)}, Shape{1, 2, gpus(1)}, true},
		"more members":                      {Shape{1, 3, gpus(1)}, Shape{1, 2, gpus(1)}, true},
		"fewer members":                     {Shape{1, 1, gpus(1)}, Shape{1, 2, gpus(1)}, false},
		"larger members":                    {Shape{1, 2, gpus(2)}, Shape{1, 2, gpus(1)}, true},
		"fewer of them that are larger":     {Shape{1, 1, gpus(4)}, Shape{1, 2, gpus(1)}, false},
		"something else is asked for, too":  {Shape{1, 2, resource.Vector{"gpu": 1, v1.ResourceCPU: 1}}, Shape{1, 2, gpus(1)}, true},
		"something else is asked for":       {Shape{1, 2, resource.Vector{v1.ResourceCPU: 1}}, Shape{1, 2, gpus(1)}, false},
		"other nodes may do":                {Shape{1, 2, gpus(1)}, Shape{2, 2, gpus(1)}, false},
		"what is not known says nothing":    {Shape{}, Shape{}, false},
		"of what is not known nothing said": {Shape{1, 2, gpus(1)}, Shape{}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := c.one.asksNoLessThan(c.other); got != c.want {
				t.Errorf("%+v asks for no less than %+v: %t", c.one, c.other, got)
			}
		})
	}
}
