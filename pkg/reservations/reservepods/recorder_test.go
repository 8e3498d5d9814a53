package reservepods

import (
	"fmt"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// notes is a recorder that notes what events are about.
type notes struct {
	said   *[]string
	logger string
}

func (n notes) Eventf(regarding, related runtime.Object, _, reason, _, note string, args ...any) {
	*n.said = append(*n.said, fmt.Sprintf("%s%s about %s and %s: %s", n.logger, reason, nameOf(regarding), nameOf(related), fmt.Sprintf(note, args...)))
}

func (n notes) WithLogger(klog.Logger) events.EventRecorderLogger {
	return notes{said: n.said, logger: "logged "}
}

func nameOf(object runtime.Object) string {
	switch object := object.(type) {
	case nil:
		return "nothing"
	case *v1.ObjectReference:
		return object.Kind + " " + object.Name
	case *v1.Pod:
		return "pod " + object.Name
	}
	return fmt.Sprintf("%T", object)
}

func TestRecorder(t *testing.T) {
	reserve, real := reservePod("a").Obj(), st.MakePod().Name("real").Obj()
	for name, c := range map[string]struct {
		regarding, related runtime.Object
		want               []string
	}{
		"an event about a reserve pod":               {reserve, nil, []string{"Why about Reservation a and nothing: 5 nodes"}},
		"an event about a real pod":                  {real, nil, []string{"Why about pod real and nothing: 5 nodes"}},
		"an event that a reserve pod has to do with": {real, reserve, []string{"Why about pod real and Reservation a: 5 nodes"}},
		"an event about something else":              {&v1.ObjectReference{Kind: "PodGroup", Name: "g"}, nil, []string{"Why about PodGroup g and nothing: 5 nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			var said, want []string
			r := Recorder(notes{said: &said})
			r.Eventf(c.regarding, c.related, v1.EventTypeWarning, "Why", "Action", "%d nodes", 5)
			r.WithLogger(klog.Background()).Eventf(c.regarding, c.related, v1.EventTypeWarning, "Why", "Action", "%d nodes", 5)
			for _, w := range c.want {
				want = append(want, w, "logged "+w)
			}
			expect(t, "events", want, said)
		})
	}
}

// TestRecorderAnnotations: the annotations of an event go to a recorder that writes some.
func TestRecorderAnnotations(t *testing.T) {
	inner := annotating{notes{said: &[]string{}}, map[string]string{}}
	Recorder(inner).(events.AnnotatedEventRecorder).AnnotatedEventf(reservePod("a").Obj(), nil, map[string]string{"n": "5"}, v1.EventTypeNormal, "Why", "Action", "%d nodes", 5)
	expect(t, "events", []string{"Why about Reservation a and nothing: 5 nodes"}, *inner.said)
	if !maps.Equal(inner.seen, map[string]string{"n": "5"}) {
		t.Errorf("annotations %v, want those of the event", inner.seen)
	}
}

// annotating is a recorder that writes annotations.
type annotating struct {
	notes
	seen map[string]string
}

func (a annotating) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string, kind, reason, action, note string, args ...any) {
	maps.Copy(a.seen, annotations)
	a.Eventf(regarding, related, kind, reason, action, note, args...)
}

// kinds is a recorder that notes the types of events.
type kinds struct {
	notes
	seen *[]string
}

func (k kinds) Eventf(_, _ runtime.Object, kind, _, _, _ string, _ ...any) {
	*k.seen = append(*k.seen, kind)
}

// TestWaitingIsNoWarning: nobody has to act where a Reservation waits for what is promised to it on the nodes that it
// names; its other events, and those of others, are as they were.
func TestWaitingIsNoWarning(t *testing.T) {
	named := reservePod("a").NodeAffinityIn(metav1.ObjectNameField, []string{"n"}, st.NodeSelectorTypeMatchFields).Obj()
	real := named.DeepCopy()
	real.Name = "real"
	for sentence, c := range map[string]struct {
		pod          *v1.Pod
		reason, want string
	}{
		"kube-scheduler finds no place on them": {named, "FailedScheduling", v1.EventTypeNormal},
		"they have no room for all of it":       {named, v1.PodReasonUnschedulable, v1.EventTypeNormal},
		"its queue waits for them":              {named, string(queueing.Behind), v1.EventTypeNormal},
		"its queue is closed":                   {named, string(queueing.Closed), v1.EventTypeWarning},
		"its template has a bad value":          {named, "BadGangValue", v1.EventTypeWarning},
		"it names no nodes":                     {reservePod("a").Obj(), "FailedScheduling", v1.EventTypeWarning},
		"a pod names a node":                    {real, "FailedScheduling", v1.EventTypeWarning},
	} {
		var seen []string
		Recorder(kinds{seen: &seen}).Eventf(c.pod, nil, v1.EventTypeWarning, c.reason, "Scheduling", "why")
		expect(t, sentence, []string{c.want}, seen)
	}
}
