package explain

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

func TestSuggest(t *testing.T) {
	names := []string{"eval", "pretrain", "job.train"}
	for name, want := range map[string]string{
		"pretrian": `: did you mean "pretrain"?`,
		"eva":      `: did you mean "eval"?`,
		"train":    `: did you mean "pretrain"?`,
		"nothing":  "",
	} {
		if got := suggest(name, names); got != want {
			t.Errorf("of %q it says %q, want %q", name, got, want)
		}
	}
	if got := suggest("x", nil); got != "" {
		t.Errorf("of nothing it says %q", got)
	}
}

// base has one list of pods.
type base v1.PodList

// Read implements source.Base.
func (b *base) Read(*http.Request) (*http.Response, error) {
	body, err := json.Marshal((*v1.PodList)(b))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, err
}

// TestInNoGang: who asks for the gang of a pod that is in none is told what the pod waits for.
func TestInNoGang(t *testing.T) {
	const why = "scheduling.lockstep.dev/gang: \"owner\" is not one of Owner, OwnerPart; correct it"
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "typo"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "GangUnsupported", Message: why},
	}}}
	list := &base{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{pod}}
	_, err := gangOf(t.Context(), &source.Cluster{Base: list}, "pod", "ns", "typo")
	if err == nil || !strings.Contains(err.Error(), "is in no gang") || !strings.HasSuffix(err.Error(), "; it waits: "+why) {
		t.Errorf("error %v, want one that says that it is in no gang, and waits: %s", err, why)
	}
}
