package gangspec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// asking returns a pod that asks for a gang and was made by an object of a kind.
func asking(asks, apiVersion, kind, name string, labels map[string]string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: labels}}
	if asks != "" {
		pod.Annotations = map[string]string{v1alpha1.GangAnnotation: asks}
	}
	if kind != "" {
		controls := true
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, Controller: &controls}}
	}
	return pod
}

func jobSetLabels(name, part string) map[string]string {
	return map[string]string{v1alpha1.JobSetNameLabel: name, v1alpha1.ReplicatedJobNameLabel: part}
}

func groupLabels(name, index string) map[string]string {
	return map[string]string{v1alpha1.LeaderWorkerSetNameLabel: name, v1alpha1.LeaderWorkerGroupLabel: index}
}

const inNone = "in none"

func TestKeyByOwner(t *testing.T) {
	const owner, part = v1alpha1.GangOwner, v1alpha1.GangOwnerPart
	native := asking(owner, "batch/v1", "Job", "train", nil)
	name := "native"
	native.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name}
	free := asking(owner, "batch/v1", "Job", "train", nil)
	free.OwnerReferences[0].Controller = nil
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"pods of a Job that do not ask are in no gang":     {asking("", "batch/v1", "Job", "train", nil), inNone},
		"pods of a Job that ask are one gang":              {asking(owner, "batch/v1", "Job", "train", nil), "ns/job.train"},
		"a Job is one gang whatever is asked of its parts": {asking(part, "batch/v1", "Job", "train", nil), "ns/job.train"},
		"a name with dots stays as it is":                  {asking(owner, "batch/v1", "Job", "a.b", nil), "ns/job.a.b"},
		"a Job that does not control the pod is no owner":  {free, inNone},
		"a Job of another API group is none":               {asking(owner, "batch.volcano.sh/v1alpha1", "Job", "train", nil), inNone},
		"pods of a JobSet are one gang":                    {asking(owner, "batch/v1", "Job", "train-w-0", jobSetLabels("train", "w")), "ns/jobset.train"},
		"or one for each replicated job":                   {asking(part, "batch/v1", "Job", "train-w-0", jobSetLabels("train", "w")), "ns/jobset.train.w"},
		"of a replicated job that is not told there is none": {
			asking(part, "batch/v1", "Job", "train-w-0", map[string]string{v1alpha1.JobSetNameLabel: "train"}), inNone},
		"leader and workers of a group are one gang": {asking(owner, "apps/v1", "StatefulSet", "serve", groupLabels("serve", "0")), "ns/lws.serve.0"},
		"groups are parts already":                   {asking(part, "apps/v1", "StatefulSet", "serve-1", groupLabels("serve", "1")), "ns/lws.serve.1"},
		"of a group without an index there is none": {
			asking(owner, "apps/v1", "StatefulSet", "serve", map[string]string{v1alpha1.LeaderWorkerSetNameLabel: "serve"}), inNone},
		"a label that names no object counts for nothing": {asking(owner, "batch/v1", "Job", "train", jobSetLabels("Not_A_Name", "w")), "ns/job.train"},
		"a name that ends in a dash names none":           {asking(owner, "", "", "", jobSetLabels("train-", "w")), inNone},
		"another value is none":                           {asking("owner", "batch/v1", "Job", "train", nil), inNone},
		"pods of a Deployment are in no gang":             {asking(owner, "apps/v1", "ReplicaSet", "web", nil), inNone},
		"pods of nobody are in no gang":                   {asking(owner, "", "", "", nil), inNone},
		"what is asked for counts before spec.schedulingGroup, which the Job controller may write": {native, "ns/job.train"},
		"the label of a PodGroup counts before the owner":                                          {asking(owner, "batch/v1", "Job", "train", map[string]string{v1alpha1.PodGroupXLabel: "own"}), "ns/own"},
		"a JobSet whose name has that of a part is another":                                        {asking(owner, "batch/v1", "Job", "x", jobSetLabels("train-w", "d")), "ns/jobset.train-w"},
	} {
		t.Run(sentence, func(t *testing.T) {
			key, source, ok := KeyOf(c.pod)
			got := key.String()
			if !ok {
				got = inNone
			} else if strings.Contains(got, ".") && source != FromOwner {
				t.Errorf("it joined by %d, want %d", source, FromOwner)
			}
			if got != c.want {
				t.Errorf("the pod is in gang %s, want %s", got, c.want)
			}
			if _, err := ParseKey(got); ok && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPodThatAsksForAnUnknownGangIsHeldBack(t *testing.T) {
	const why = `scheduling.lockstep.dev/gang: "owner" is not one of Owner, OwnerPart; correct it on the template that the pod is made from, or remove it to have the pod scheduled alone`
	scheduled := asking("owner", "batch/v1", "Job", "train", nil)
	scheduled.Spec.NodeName = "n"
	grouped := asking("owner", "batch/v1", "Job", "train", nil) // as the Job controller makes pods, with WorkloadWithJob
	grouped.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		held bool
	}{
		"a value that is none":                  {asking("owner", "batch/v1", "Job", "train", nil), true},
		"whatever the Job controller writes":    {grouped, true},
		"a value that is one":                   {asking("Owner", "batch/v1", "Job", "train", nil), false},
		"an owner that makes no gangs":          {asking("Owner", "apps/v1", "ReplicaSet", "web", nil), false},
		"no value":                              {asking("", "batch/v1", "Job", "train", nil), false},
		"another key counts before it":          {asking("owner", "", "", "", map[string]string{v1alpha1.PodGroupLabel: "g"}), false},
		"a pod that was placed by another rule": {scheduled, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			switch err := CheckPod(c.pod); {
			case c.held && (err == nil || err.Error() != why):
				t.Errorf("it is held back for %v, want %s", err, why)
			case !c.held && err != nil:
				t.Errorf("it is held back: %v", err)
			}
		})
	}
	if _, _, member := KeyOf(grouped); member {
		t.Error("it is in the gang of its native PodGroup")
	}
}

func TestAskedInVain(t *testing.T) {
	const alone = "no gang: the pod is scheduled alone"
	const use = alone + "; give it a gang by gang.scheduling.koordinator.sh/name and gang.scheduling.koordinator.sh/min-available, or by a PodGroup"
	for sentence, c := range map[string]struct {
		pod        *v1.Pod
		want, used string
	}{
		"a pod that asks for nothing":             {pod: asking("", "apps/v1", "ReplicaSet", "web", nil)},
		"an owner that is known":                  {pod: asking("Owner", "batch/v1", "Job", "train", nil)},
		"another key that says the gang":          {pod: asking("owner", "", "", "", map[string]string{v1alpha1.PodGroupLabel: "g"})},
		"a value that is none":                    {asking("owner", "batch/v1", "Job", "train", nil), "one of Owner, OwnerPart", "nothing: the pod waits until this is corrected"},
		"an owner of which the number is unknown": {asking("Owner", "apps/v1", "ReplicaSet", "web", nil), `for pods of ReplicaSet "web", only for those of a Job, JobSet or LeaderWorkerSet`, use},
		"no owner": {asking("OwnerPart", "", "", "", nil), "for pods of no controller, only for those of a Job, JobSet or LeaderWorkerSet", use},
	} {
		t.Run(sentence, func(t *testing.T) {
			var want *KeyProblem
			if c.want != "" {
				want = &KeyProblem{Key: v1alpha1.GangAnnotation, Value: c.pod.Annotations[v1alpha1.GangAnnotation], Want: c.want, Used: c.used}
			}
			if diff := cmp.Diff(want, askedInVain(c.pod)); diff != "" {
				t.Errorf("askedInVain (-want +got):\n%s", diff)
			}
		})
	}
	empty := asking("", "apps/v1", "ReplicaSet", "web", nil)
	empty.Annotations = map[string]string{v1alpha1.GangAnnotation: ""}
	if p := askedInVain(empty); p != nil {
		t.Errorf("an empty value opts out, and gets %v", p)
	}
}

// Whatever labels say, the name of a gang can be that of an object.
func FuzzOwnerOf(f *testing.F) {
	f.Add("train", "workers", "0")
	f.Add("Train", "a.b", "-")
	f.Add("", "\x00", "01")
	f.Fuzz(func(t *testing.T, name, part, index string) {
		for _, labels := range []map[string]string{jobSetLabels(name, part), groupLabels(name, index)} {
			for _, asks := range []string{v1alpha1.GangOwner, v1alpha1.GangOwnerPart} {
				owner, ok := OwnerOf(asking(asks, "", "", "", labels))
				if !ok || len(name) > validation.LabelValueMaxLength || len(part+index) > validation.LabelValueMaxLength {
					continue
				}
				if problems := validation.IsDNS1123Subdomain(owner.GangName()); len(problems) > 0 {
					t.Errorf("%+v has the gang %q: %s", owner, owner.GangName(), problems)
				}
			}
		}
	})
}

// TestProblemsOutside: of a pod in no gang, too, a bad value is reported.
func TestProblemsOutside(t *testing.T) {
	for sentence, c := range map[string]struct {
		annotations map[string]string
		want        []string // the keys
	}{
		"nothing said":              {},
		"a topology that can be":    {annotations: map[string]string{requiredKey: "rack"}},
		"a topology that cannot be": {annotations: map[string]string{requiredKey: "a b", preferKey: "a/b/c"}, want: []string{requiredKey, preferKey}},
		"a minimum without a name":  {annotations: map[string]string{minKey: "4"}, want: []string{minKey}},
		"a bad minimum, no name":    {annotations: map[string]string{minKey: "four"}, want: []string{minKey}},
		"a gang that is none":       {annotations: map[string]string{v1alpha1.GangAnnotation: "owner"}, want: []string{v1alpha1.GangAnnotation}},
		"a member":                  {annotations: map[string]string{v1alpha1.GangNameAnnotation: "g", minKey: "four"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Annotations: c.annotations}}
			var keys []string
			for _, problem := range ProblemsOutside(pod, Defaults{}) {
				keys = append(keys, problem.Key)
			}
			if diff := cmp.Diff(c.want, keys); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
		})
	}
}
