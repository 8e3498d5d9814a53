package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
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

// TestNameIn: a type and a name may be two arguments, as those of kubectl.
func TestNameIn(t *testing.T) {
	for args, want := range map[string]string{"": "", "train": "train", "a/train": "a/train", "job train": "job/train", "PodGroup train": "PodGroup/train"} {
		if got, err := nameIn(strings.Fields(args)); err != nil || got != want {
			t.Errorf("in %q it finds %q, %v; want %q", args, got, err, want)
		}
	}
	const want = `checking the name: "a" is none of job, pod, podgroup: write one NAME, or TYPE NAME`
	if _, err := nameIn([]string{"a", "train"}); err == nil || err.Error() != want {
		t.Errorf("of two names it says %v, want %s", err, want)
	}
}

// base has one list of pods, and one Job.
type base struct {
	pods v1.PodList
	job  batchv1.Job
	// native is the native PodGroup of any name; nil for none.
	native *schedulingv1beta1.PodGroup
}

// Read implements source.Base.
func (b *base) Read(r *http.Request) (*http.Response, error) {
	var what any = &b.pods
	if strings.Contains(r.URL.Path, "/jobs/") {
		what = &b.job
	}
	if strings.HasSuffix(r.URL.Path, "/podgroups") {
		what = &coscheduling.PodGroupList{}
	}
	if strings.Contains(r.URL.Path, "/scheduling.k8s.io/") && strings.Contains(r.URL.Path, "/podgroups/") {
		if b.native == nil {
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
		}
		what = b.native
	}
	body, err := json.Marshal(what)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, err
}

// TestInNoGang: who asks for the gang of a pod that is in none is told what the pod waits for.
func TestInNoGang(t *testing.T) {
	const why = "scheduling.lockstep.dev/gang: \"owner\" is not one of Owner, OwnerPart; correct it"
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "typo"}, Status: v1.PodStatus{Conditions: []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "GangUnsupported", Message: why},
	}}}
	list := metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
	_, err := gangOf(t.Context(), (&source.Cluster{Base: &base{pods: v1.PodList{TypeMeta: list, Items: []v1.Pod{pod}}}}).Read, "pod", "ns", "typo")
	if err == nil || !strings.Contains(err.Error(), "is in no gang") || !strings.HasSuffix(err.Error(), "; it waits: "+why) {
		t.Errorf("error %v, want one that says that it is in no gang, and waits: %s", err, why)
	}
	// Of a bad value it says what is wrong with it, once.
	pod.Annotations = map[string]string{v1alpha1.GangAnnotation: "owner"}
	pods := []v1.Pod{pod, {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "good"}}, *pod.DeepCopy()}
	pods[2].Name, pods[2].Spec.NodeName = "runs", "n"
	_, err = gangOf(t.Context(), (&source.Cluster{Base: &base{pods: v1.PodList{TypeMeta: list, Items: pods}}}).Read, "pod", "ns", "typo")
	const bad = `pod ns/typo is in no gang: scheduling.lockstep.dev/gang: "owner" is not one of Owner, OwnerPart`
	if err == nil || !strings.HasPrefix(err.Error(), bad) || strings.Count(err.Error(), "owner\"") != 1 {
		t.Errorf("error %v, want one that says once: %s", err, bad)
	}
	if got, want := withBadValue(apiobjects.Pointers(pods)), "1 pod waits with a value of scheduling.lockstep.dev/gang that is none: ns/typo; see kubectl gang explain pod/typo -n ns"; got != want {
		t.Errorf("of all pods it says %q, want %q", got, want)
	}
	if got := withBadValue(apiobjects.Pointers(pods[1:])); got != "" {
		t.Errorf("of the others it says %q", got)
	}
	// A key that is misspelled in the template, or stands on the Job, is named.
	asks := map[string]string{v1alpha1.GangAnnotation: v1alpha1.GangOwner}
	for want, annotations := range map[string][2]map[string]string{
		"; on the Job " + v1alpha1.GangAnnotation + " has no effect here: it is an annotation of pods and namespaces; put it on the pod template": {asks, nil},
		"; " + v1alpha1.GangAnnotation + "s is not a key that is read here: did you mean " + v1alpha1.GangAnnotation + "?": {
			nil, {v1alpha1.GangAnnotation + "s": v1alpha1.GangOwner}},
	} {
		job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", Annotations: annotations[0]}}
		job.Spec.Template.Annotations = annotations[1]
		_, err := gangOf(t.Context(), (&source.Cluster{Base: &base{pods: v1.PodList{TypeMeta: list}, job: job}}).Read, "job", "ns", "train")
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v, want one that ends with: %s", err, want)
		}
	}
}

// TestLabelOfTheTemplate: a label of the pod template, which the API server gives the Job, too, is told of the pods alone.
func TestLabelOfTheTemplate(t *testing.T) {
	labels := map[string]string{v1alpha1.GangAnnotation: v1alpha1.GangOwner}
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", Labels: labels}}
	job.Spec.Template.Labels = labels
	list := metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
	_, err := gangOf(t.Context(), (&source.Cluster{Base: &base{pods: v1.PodList{TypeMeta: list}, job: job}}).Read, "job", "ns", "train")
	const want = "; " + v1alpha1.GangAnnotation + " has no effect as a label of pods: it is an annotation of pods and namespaces"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("error %v, want one that ends with: %s", err, want)
	}
}

// TestGangOfNativePod: a pod that names a native PodGroup is in its gang, unless its policy is basic.
func TestGangOfNativePod(t *testing.T) {
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: v1.PodSpec{SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: new("train")}}}
	pods := v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{pod}}
	group := func(policy schedulingv1beta1.PodGroupSchedulingPolicy) *schedulingv1beta1.PodGroup {
		return &schedulingv1beta1.PodGroup{TypeMeta: metav1.TypeMeta{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup"}, Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: policy}}
	}
	for sentence, c := range map[string]struct {
		group *schedulingv1beta1.PodGroup
		gang  string
		err   string
	}{
		"no PodGroup": {gang: "ns/train"},
		"a gang":      {group: group(schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}}), gang: "ns/train"},
		"no gang": {
			group: group(schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}),
			err:   "pod ns/p is in no gang: native PodGroup ns/train has the basic policy, so each of its pods is scheduled alone",
		},
	} {
		gang, err := gangOf(t.Context(), (&source.Cluster{Base: &base{pods: pods, native: c.group}}).Read, "pod", "ns", "p")
		if gang != c.gang || (c.err == "") != (err == nil) || err != nil && err.Error() != c.err {
			t.Errorf("%s: gang %q, error %v; want %q, %q", sentence, gang, err, c.gang, c.err)
		}
	}
}

// TestBeyondMinimum: of gangs that run it says how many of their pods wait.
func TestBeyondMinimum(t *testing.T) {
	pod := func(gang, node string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{v1alpha1.GangNameAnnotation: gang}}, Spec: v1.PodSpec{NodeName: node}}
	}
	gang := func(name, phase string) view.Gang { return view.Gang{Namespace: "ns", Name: name, Phase: phase} }
	gangs := []view.Gang{gang("elastic", "Running"), gang("whole", "Running"), gang("waits", "Pending")}
	pods := []*v1.Pod{pod("elastic", "n"), pod("whole", "n"), pod("waits", ""), pod("elastic", "")}
	if got, want := beyondMinimum(gangs, pods), "1 pod beyond the minimum of ns/elastic waits"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got, want := beyondMinimum(gangs, append(pods, pod("whole", ""), pod("whole", ""))), "1 pod beyond the minimum of ns/elastic, 2 pods beyond the minimum of ns/whole wait"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := beyondMinimum(gangs, pods[:3]); got != "" {
		t.Errorf("where only a gang waits that does not run, it says %q", got)
	}
}

// TestSeveralAsData: without a name, the gangs that wait are explanations as data, too.
func TestSeveralAsData(t *testing.T) {
	pod := func(gang string) v1.Pod {
		return v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: gang + "-0", UID: apitypes.UID(gang), Annotations: map[string]string{
			v1alpha1.GangNameAnnotation: gang, v1alpha1.MinAvailableAnnotation: "2"}}}
	}
	for want, items := range map[string][]v1.Pod{"a gathering, b gathering": {pod("a"), pod("b")}, "": nil} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		o := &options{Access: access.New(streams)}
		cluster := &source.Cluster{Base: &base{pods: v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: items}}}
		cmd := output.Command(&cobra.Command{}, out, func(ctx context.Context, p *output.Printer, _ []string) error {
			_, err := o.onlyOne(ctx, p, cluster, "ns")
			return err
		})
		cmd.SetArgs([]string{"-o", "json"})
		must.Succeed(t, cmd.ExecuteContext(t.Context()))
		var list struct {
			Kind  string
			Items []Report
		}
		must.Succeed(t, json.Unmarshal(out.Bytes(), &list))
		var got []string
		for _, r := range list.Items {
			got = append(got, strings.TrimPrefix(r.Gang, "ns/")+" "+r.State)
		}
		if got := strings.Join(got, ", "); list.Kind != "GangExplanation" || got != want {
			t.Errorf("it prints %s of %s, want %s", list.Kind, got, want)
		}
	}
}

// TestUnreadGangs: where pods cannot be read, no gang is made up of PodGroups; where PodGroups cannot be, what gangs do
// not say themselves is left open.
func TestUnreadGangs(t *testing.T) {
	read := func(refused string) reader {
		return func(_ context.Context, path string, into any) error {
			if strings.HasSuffix(path, refused) {
				return apierrors.NewForbidden(schema.GroupResource{Resource: refused}, "", nil)
			}
			if groups, ok := into.(*coscheduling.PodGroupList); ok {
				groups.Items = []coscheduling.PodGroup{{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}}}
			}
			return nil
		}
	}
	if _, _, err := readGangs(t.Context(), read("/pods"), "ns"); !apierrors.IsForbidden(err) {
		t.Errorf("without pods: %v, want that they are refused", err)
	}
	in, unread, err := readGangs(t.Context(), read("/podgroups"), "ns")
	if err != nil || len(unread) != 2 || len(in.PodGroups) != 0 {
		t.Errorf("without PodGroups: %v, %v, %v", in, unread, err)
	}
	undefined := view.Gang{Phase: "Pending", Reason: v1alpha1.ReasonGangUndefined, Message: "it has no minimum"}
	if !undefined.LeaveOpen() || undefined.Phase != "" || undefined.Reason != "" || undefined.Message != "" {
		t.Errorf("it still says %+v", undefined)
	}
	waits := view.Gang{Phase: "Pending", Reason: v1alpha1.ReasonUnschedulable}
	if waits.LeaveOpen() || waits.Reason == "" {
		t.Errorf("what its pods say is gone: %+v", waits)
	}
}
