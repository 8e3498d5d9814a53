package gangspec

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// Mode says what happens to held members when one does not fit.
type Mode string

const (
	// Strict: one failure fails the round and gives back all that is held.
	Strict Mode = v1alpha1.ModeStrict
	// NonStrict: what fits is held, and accumulates until the minimum is reached.
	NonStrict Mode = v1alpha1.ModeNonStrict
)

// MatchPolicy says which members count towards the minimum.
type MatchPolicy string

const (
	// OnceSatisfied: after the first release later members go alone.
	OnceSatisfied MatchPolicy = v1alpha1.MatchOnceSatisfied
	// OnlyWaiting: only members that are held count.
	OnlyWaiting MatchPolicy = v1alpha1.MatchOnlyWaiting
	// WaitingAndRunning: held and running members count.
	WaitingAndRunning MatchPolicy = v1alpha1.MatchWaitingAndRunning
)

// CountsRunning reports whether members that run count towards the minimum.
func (p MatchPolicy) CountsRunning() bool { return p != OnlyWaiting }

// Spec is what the user asked for, with every default filled in.
type Spec struct {
	// Min is the number of members that start together; 0 means that it is not stated (yet), and
	// then no member is scheduled.
	Min  int
	Mode Mode
	// WaitTime is the longest time since the first member was held. After it no member is tried
	// again until the user acts.
	WaitTime time.Duration
	// WaitTimeSet: the user wrote it.
	WaitTimeSet bool
	// RoundTime is the longest time since the first member of a round was held. After it the round
	// has failed, and the gang is tried again. 0 if not stated.
	RoundTime time.Duration
	// Groups are the other gangs that start together with this one, sorted,
	// without duplicates and without itself.
	Groups []Key
	Policy MatchPolicy
	// Stages are the minimums of the parts that are made one after the other; nil if all members
	// are made at once.
	Stages Stages
	// MinByRole is the minimum of each role; nil if there are no roles.
	MinByRole map[string]int
	// RequiredTopology is the label key of the topology that has to have all members in one
	// domain; empty for none.
	RequiredTopology string
	// Layout is how they are laid out inside that.
	Layout Layout
	// PreemptionDelay is how long the gang evicts no pod, from when it first did not fit; not negative.
	PreemptionDelay time.Duration
	// EvictBy is how the gang is evicted as a whole, [v1alpha1.EvictByDelete] or [v1alpha1.EvictBySuspend]; empty if
	// not stated.
	EvictBy string
	// MinResources is what has to be free for the gang in all before it starts; nil for
	// nothing. All amounts are positive.
	MinResources resource.Vector
	// NeverPreempts: the gang evicts no pod. Whole: it is evicted whole, or not at all.
	NeverPreempts, Whole bool
	// Refused is why no member is scheduled; then Min is 0. Empty for nothing.
	Refused string
}

// Defaults are what holds for gangs that say nothing else.
type Defaults struct {
	// WaitTime is how long a gang holds what it has.
	WaitTime time.Duration
	Topology Topology
}

// RolesBind reports whether the minimum of each role has to be there. A gang whose minimum is
// below their sum is elastic, and its roles do not bind it.
func (s *Spec) RolesBind() bool {
	sum := 0
	for _, n := range s.MinByRole {
		sum += n
	}
	return sum > 0 && s.Min >= sum
}

// KeyProblem is a value that could not be used, or a key that has no effect.
type KeyProblem struct {
	Key   string // the annotation, label or field
	Value string // as the user wrote it
	Want  string // what would have been right
	Used  string // what is used instead
	// Ignored is why the key has no effect, whatever its value; empty if the value is at fault.
	Ignored string
	// OnObject: the PodGroup carries it, not the pod.
	OnObject bool
}

// String returns the text of the event that tells the user.
func (p KeyProblem) String() string {
	if p.Ignored != "" {
		return p.Key + " " + p.Ignored
	}
	return p.Fault() + "; using " + p.Used
}

// Fault says what is wrong with the value.
func (p KeyProblem) Fault() string {
	return fmt.Sprintf("%s: %q is not %s", p.Key, words.Clip(p.Value, longValue), p.Want)
}

// longValue is as much of a value as is quoted: an event has a limit, and what follows the
// value matters more than its end.
const longValue = 200

// IgnoredKeys returns the keys of an object that have no effect there, on a Job without those of its template.
func IgnoredKeys(on keys.Object, object metav1.Object) (problems []KeyProblem) {
	for _, ignored := range keys.FindIgnored(on, object.GetAnnotations(), object.GetLabels()) {
		problems = append(problems, KeyProblem{Key: ignored.Key, Value: ignored.Value, Ignored: ignored.Why,
			OnObject: on == keys.PodGroup})
	}
	if job, isJob := object.(*batchv1.Job); isJob {
		problems = slices.DeleteFunc(problems, func(problem KeyProblem) bool { return isOfTemplate(job, problem) })
	}
	if on == keys.Pod {
		problems = append(problems, otherGangs(object)...)
	}
	return problems
}

// isOfTemplate reports whether a key is a label of the template of a Job: the API server gives these to a Job without
// labels.
func isOfTemplate(job *batchv1.Job, problem KeyProblem) bool {
	return job.Labels[problem.Key] == problem.Value && job.Spec.Template.Labels[problem.Key] == problem.Value
}

// otherGangs returns the labels of a pod that name another gang than its annotation, which counts first.
func otherGangs(pod metav1.Object) (problems []KeyProblem) {
	gang, labels := pod.GetAnnotations()[v1alpha1.GangNameAnnotation], pod.GetLabels()
	if gang == "" {
		return nil
	}
	for _, key := range [...]string{v1alpha1.PodGroupLabel, v1alpha1.PodGroupXLabel, v1alpha1.PodGroupNameLabel} {
		if name := labels[key]; name != "" && name != gang {
			problems = append(problems, KeyProblem{Key: key, Value: name, Ignored: fmt.Sprintf("names gang %q, and has no "+
				"effect here: the annotation %s counts before it, and names %q", name, v1alpha1.GangNameAnnotation, gang)})
		}
	}
	return problems
}

// PodGroupDescription is what a PodGroup says of a gang. Zero fields say nothing.
type PodGroupDescription struct {
	UID     types.UID
	Created time.Time
	// Owner is the object whose pods it was made for; empty for pods of any.
	Owner types.UID
	Min   int32
	// MinField is what users call the field that Min is; empty for spec.minMember.
	MinField string
	// RoundSeconds is spec.scheduleTimeoutSeconds. Operators write it into all PodGroups,
	// or 0 for nothing.
	RoundSeconds *int32
	// MinResources is spec.minResources as it is written.
	MinResources v1.ResourceList
	Annotations  map[string]string
	// Queue is the queue that it names; empty for none.
	Queue string
	// Ignored are its keys that have no effect.
	Ignored []KeyProblem
	// Succeeded is how many members ran to success by its status, while others have not ended; 0 unless
	// [ReadWithStatus] read it.
	Succeeded int

	// The rest only native PodGroups say, see [ReadNative].

	// Basic: its pods need not start together.
	Basic bool
	// Topology is the label key of the topology that has to have all pods in one domain.
	Topology     string
	Never, Whole bool
	// Priority is what it states; nil for nothing.
	Priority *int32
	// Refused is why none of its pods is scheduled.
	Refused string
	// Problems are what is not understood of it.
	Problems []KeyProblem
}

// statedMin returns the minimum as a pod states it, and under which key.
func statedMin(pod *v1.Pod) (key, value string) {
	if value, ok := pod.Annotations[v1alpha1.MinAvailableAnnotation]; ok {
		return v1alpha1.MinAvailableAnnotation, value
	}
	if value, ok := pod.Labels[v1alpha1.PodGroupMinAvailableLabel]; ok {
		return v1alpha1.PodGroupMinAvailableLabel, value
	}
	return v1alpha1.PodGroupMinAvailableLabel, pod.Annotations[v1alpha1.PodGroupMinAvailableLabel]
}

// DefinesGang reports whether a pod states a usable minimum, and so may define the gang. bad is set
// if it states one that cannot be used.
func DefinesGang(pod *v1.Pod) (ok bool, bad *KeyProblem) {
	key, value := statedMin(pod)
	if value == "" {
		return false, nil
	}
	if _, err := minimum.ParseInteger(value); err != nil {
		return false, &KeyProblem{Key: key, Value: value, Want: minimum.Want,
			Used: "the minimum that another member or the PodGroup states; without one the gang is held back"}
	}
	return true, nil
}

// describing are the annotations that describe a gang: those that pods and PodGroups may carry. The last one is a
// label, too.
var describing = func() (names []string) {
	for _, key := range keys.Table {
		if slices.Contains(key.AnnotationOf, keys.Pod) && slices.Contains(key.AnnotationOf, keys.PodGroup) {
			names = append(names, key.Name)
		}
	}
	return append(names, v1alpha1.PodGroupMinAvailableLabel)
}()

// Differences returns what a pod says of its gang, and the pod that defines the gang does not.
func Differences(pod, definer *v1.Pod) (problems []KeyProblem) {
	compare := func(key, value, used string) {
		if value == "" || value == used {
			return
		}
		counts := fmt.Sprintf("%q", used)
		if used == "" {
			counts = "what the PodGroup says, or the default"
		}
		problems = append(problems, KeyProblem{
			Key: key, Value: value, Want: fmt.Sprintf("what pod %s says, which counts for the gang", definer.Name),
			Used: counts + "; write the same on all its pods",
		})
	}
	if ok, _ := DefinesGang(pod); ok {
		key, value := statedMin(pod)
		_, used := statedMin(definer)
		compare(key, value, used)
	}
	for _, key := range describing {
		if key != v1alpha1.MinAvailableAnnotation && key != v1alpha1.PodGroupMinAvailableLabel {
			compare(key, pod.Annotations[key], definer.Annotations[key])
		}
	}
	return problems
}

// DescribesGang reports whether a pod carries anything besides membership, so that it may add to what
// a PodGroup says.
func DescribesGang(pod *v1.Pod) bool {
	for _, key := range describing {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
	}
	_, ok := pod.Labels[v1alpha1.PodGroupMinAvailableLabel]
	return ok
}

// DescribeAlike reports whether two versions of a pod say the same of their gang.
func DescribeAlike(a, b *v1.Pod) bool {
	for _, key := range describing {
		if !sameEntry(a.Annotations, b.Annotations, key) {
			return false
		}
	}
	return sameEntry(a.Labels, b.Labels, v1alpha1.PodGroupMinAvailableLabel)
}

func sameEntry(a, b map[string]string, key string) bool {
	x, inA := a[key]
	y, inB := b[key]
	return inA == inB && x == y
}
