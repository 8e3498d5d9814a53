package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// listener keeps what it is called with.
type listener []string

func (l *listener) Up(*localcluster.Cluster) { *l = append(*l, "up") }
func (l *listener) Title(text string)        { *l = append(*l, "title "+text) }
func (l *listener) Say(text string)          { *l = append(*l, "say "+text) }
func (l *listener) Command(line string)      { *l = append(*l, "command "+line) }
func (l *listener) Output(text string, begin bool) {
	*l = append(*l, fmt.Sprintf("output %s %t", text, begin))
}

// TestTell: the text of a step has what was seen in it.
func TestTell(t *testing.T) {
	begin := time.Unix(1000, 0)
	r := &run{rec: newRecorder(&plan{}), steps: map[string]time.Time{"ended": begin}}
	for i, node := range []string{"n0", "n1", "n2"} {
		r.rec.nodes[node] = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"rack": fmt.Sprintf("r%d", i/2)}}}
	}
	seen := func(name, node string, after time.Duration) {
		namespace, base, _ := strings.Cut(name, "/")
		p := &podRecord{name: name, pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: base}, Spec: v1.PodSpec{NodeName: node}}}
		if node != "" {
			p.boundAt = begin.Add(after)
		}
		r.rec.pods[types.UID(name)] = p
	}
	seen("a/0", "n0", time.Second)
	seen("a/1", "n1", time.Second+12*time.Millisecond)
	seen("a/2", "", 0)
	seen("b/0", "n2", 2500*time.Millisecond)
	for sentence, c := range map[string]struct {
		step Step
		want []string
	}{
		"nothing":                        {Step{}, nil},
		"a title, and then what is said": {Step{Say: "words", Title: "One"}, []string{"title One", "say words"}},
		"how far apart bindings were":    {Step{Say: `{{within "a/*"}}, {{within "a/*" "b/*"}}, {{within "c/*"}}`}, []string{"say 12 ms, 1.5 s, 1 ms"}},
		"how long it took":               {Step{Say: `{{after "ended" "a/*"}}`}, []string{"say 1.0 s"}},
		"where pods are":                 {Step{Say: `{{domains "rack" "a/*"}}; {{domains "rack" "*/*"}}`}, []string{"say r0; r0, r1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			var told listener
			r.narrator = &told
			if err := r.tell(c.step); err != nil || !slices.Equal(told, c.want) {
				t.Errorf("told %q, %v, want %q", told, err, c.want)
			}
		})
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1 ms", time.Millisecond: "1 ms", time.Millisecond + 1: "2 ms", 1500 * time.Millisecond: "1.5 s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%s) = %q, want %q", d, got, want)
		}
	}
}
