package share

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEntitled(t *testing.T) {
	total, deserved, guarantee := Vector{gpu: 8, "cpu": 9}, gpus(4), Vector{gpu: 1, "cpu": 2}
	for _, c := range []struct {
		rules Rules
		want  Vector
	}{
		{Rules{Stated: true, Weighted: true}, gpus(4)},
		{Rules{Weighted: true}, nil},
		{Rules{Stated: true}, Vector{gpu: 4, "cpu": 2}},
		{Rules{}, Vector{gpu: 1, "cpu": 2}},
	} {
		if diff := cmp.Diff(c.want, c.rules.Entitled(total, deserved, guarantee)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.rules, diff)
		}
	}
}
