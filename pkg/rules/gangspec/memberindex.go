package gangspec

import (
	"cmp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Index is the number that a member carries.
type Index struct {
	Known bool
	N     int
	// series is the series of the number: its controller and its kind of replica; empty if the
	// numbers are those of the whole gang.
	Series string
}

// seriesIndexes are the labels that number the pods of one controller.
var seriesIndexes = [...]string{batchv1.JobCompletionIndexAnnotation, v1alpha1.TrainingReplicaIndexLabel,
	appsv1.PodIndexLabel}

// memberIndex is what the number of a member may be, under any key.
var memberIndex = keys.ValueOf(v1alpha1.NetworkTopologyIndexAnnotation)

func IndexOf(pod *v1.Pod) Index {
	if n, ok := readIndex(pod.Annotations[v1alpha1.NetworkTopologyIndexAnnotation]); ok {
		return Index{Known: true, N: n}
	}
	if n, ok := readIndex(pod.Labels[v1alpha1.LeaderWorkerIndexLabel]); ok {
		return Index{Known: true, N: n}
	}
	for _, label := range seriesIndexes {
		if n, ok := readIndex(pod.Labels[label]); ok {
			series := pod.Labels[v1alpha1.TrainingReplicaTypeLabel] + "/" + RoleOf(pod)
			if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
				series = owner.Name + "/" + series
			}
			return Index{Known: true, N: n, Series: series}
		}
	}
	return Index{}
}

func readIndex(value string) (int, bool) {
	if value == "" {
		return 0, false // an error costs more than all else here
	}
	n, err := memberIndex.ParseInteger(value)
	return n, err == nil
}

// CompareIndexes orders members of one priority: 1. those without an index first, which lead the
// others if there are any; 2. series; 3. index.
func CompareIndexes(a, b Index) int {
	return cmp.Or(bools.Compare(a.Known, b.Known), CompareNatural(a.Series, b.Series), cmp.Compare(a.N, b.N))
}

// CompareNatural orders names with the numbers in them by value: train-2 before train-10.
func CompareNatural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if !isDigit(a[i]) || !isDigit(b[j]) {
			if a[i] != b[j] {
				return cmp.Compare(a[i], b[j])
			}
			i, j = i+1, j+1
			continue
		}
		x, y := digits(a[i:]), digits(b[j:])
		i, j = i+len(x), j+len(y)
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), cmp.Compare(a, b))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns the digits that a text begins with.
func digits(s string) string { return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))] }

// IndexProblem returns what is wrong with the number that a pod states by annotation; nil if nothing is.
func IndexProblem(pod *v1.Pod) *KeyProblem {
	const key = v1alpha1.NetworkTopologyIndexAnnotation
	if _, ok := readIndex(pod.Annotations[key]); ok || pod.Annotations[key] == "" {
		return nil
	}
	return &KeyProblem{
		Key: key, Value: pod.Annotations[key], Want: memberIndex.Want,
		Used: "what the labels of the pod say, or its place in order",
	}
}
