package startup

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

type revisions = map[string]string

func TestBacklog(t *testing.T) {
	for sentence, c := range map[string]struct {
		stored revisions // at 100
		before revisions // in the cache, at first
		want   revisions
		after  revisions // in the cache, then
		gone   string    // what was deleted since
		left   int
	}{
		"a cache that has all has no backlog":           {stored: revisions{"a": "9", "b": "20"}, before: revisions{"a": "9", "b": "20"}},
		"nor has one that has later ones":               {stored: revisions{"a": "9"}, before: revisions{"a": "101"}},
		"a later revision has more digits, not letters": {stored: revisions{"a": "99"}, before: revisions{"a": "100"}},
		"what it lacks is backlog":                      {stored: revisions{"a": "9", "b": "20"}, before: revisions{"a": "9"}, want: revisions{"b": "20"}, after: revisions{"a": "9"}, left: 1},
		"until it has it":                               {stored: revisions{"b": "20"}, want: revisions{"b": "20"}, after: revisions{"b": "20"}},
		"or a later one":                                {stored: revisions{"b": "20"}, want: revisions{"b": "20"}, after: revisions{"b": "120"}},
		"what it has of before is, too":                 {stored: revisions{"a": "20"}, before: revisions{"a": "9"}, want: revisions{"a": "20"}, after: revisions{"a": "19"}, left: 1},
		"what was added and deleted meanwhile is not":   {stored: revisions{"a": "20"}, want: revisions{"a": "20"}, gone: "a"},
		"what was gone by then is":                      {before: revisions{"a": "9"}, want: revisions{"a": ""}, after: revisions{"a": "9"}, left: 1},
		"even if the cache sees changes of it":          {before: revisions{"a": "9"}, want: revisions{"a": ""}, after: revisions{"a": "10"}, left: 1},
		"until it is gone there":                        {before: revisions{"a": "9"}, want: revisions{"a": ""}},
		"what came later is nothing that was gone":      {before: revisions{"a": "101"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.want == nil {
				c.want = revisions{}
			}
			b, err := newBacklog(c.stored, "100", c.before)
			must.Succeed(t, err)
			if diff := cmp.Diff(c.want, revisions(b)); diff != "" {
				t.Errorf("backlog (-want +got):\n%s", diff)
			}
			seen := func(key string) (string, bool) { revision, ok := c.after[key]; return revision, ok }
			if left, err := b.settle(seen, func(key string) bool { return key == c.gone }); err != nil || left != c.left {
				t.Errorf("%d left, %v; want %d", left, err, c.left)
			}
		})
	}
}

func TestNoRevision(t *testing.T) {
	if _, err := newBacklog(revisions{"a": "1"}, "100", revisions{"a": "yesterday"}); err == nil {
		t.Error("a revision that is none was compared")
	}
	if _, err := newBacklog(nil, "100", revisions{"a": ""}); err == nil {
		t.Error("a revision that is none was compared")
	}
}
