package app

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/lockstep-sh/lockstep/cmd/scheduler/podlist"
	"github.com/lockstep-sh/lockstep/plugins/reservepods"
)

// early is a scheduler's cache that takes in pods while they are listed: that takes as long as the list, and the handler that does
// it otherwise begins when the list has ended. Nothing is scheduled before the handlers have got all pods, and then it has what it
// would have without.
type early struct {
	cache.Cache
	mu sync.Mutex
	// pods are the pods that the handler has not delivered yet, by UID.
	pods map[types.UID]*v1.Pod
	// listed are all pods that had not ended when they were listed first; complete is whether they have been.
	listed   []*v1.Pod
	complete bool
}

func newEarly() *early { return &early{pods: map[types.UID]*v1.Pod{}} }

// AddPod implements cache.Cache: the handler calls it.
func (e *early) AddPod(logger klog.Logger, pod *v1.Pod) error {
	e.mu.Lock()
	known := e.pods[pod.UID]
	delete(e.pods, pod.UID)
	e.mu.Unlock()
	switch {
	case known == nil:
		return e.Cache.AddPod(logger, pod)
	case known.ResourceVersion != pod.ResourceVersion:
		return e.Cache.UpdatePod(logger, known, pod)
	}
	return nil
}

// Listen returns the listener of a list: of the scheduler's first one, page by page.
func (e *early) Listen(options metav1.ListOptions) podlist.Listener {
	e.mu.Lock()
	defer e.mu.Unlock()
	if options.FieldSelector != reservepods.Selector || e.complete {
		return podlist.Nobody{}
	}
	if options.Continue == "" {
		e.forget() // the list before broke off
	}
	l := &listening{early: e, pods: make(chan *v1.Pod, ahead), done: make(chan struct{})}
	go l.run()
	return l
}

// forget takes back what was listed: the next list may not have it.
func (e *early) forget() {
	for _, pod := range e.pods {
		_ = e.RemovePod(klog.Background(), pod) // it fails only for pods that are not there
	}
	clear(e.pods)
	e.listed = nil
}

// ahead is how many pods may have been decoded and not been taken in.
const ahead = 1 << 10

// listening is a page under way.
type listening struct {
	*early
	all   []*v1.Pod
	pods  chan *v1.Pod
	added []*v1.Pod
	done  chan struct{}
}

var _ podlist.Listener = &listening{}

// Listed implements podlist.Listener.
func (l *listening) Listed(pod *v1.Pod) {
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return
	}
	if l.all = append(l.all, pod); pod.Spec.NodeName != "" {
		l.pods <- pod
	}
}

func (l *listening) run() {
	defer close(l.done)
	for pod := range l.pods {
		if l.Cache.AddPod(klog.Background(), pod) == nil { // else it is there already
			l.added = append(l.added, pod)
		}
	}
}

// Ended implements podlist.Listener.
func (l *listening) Ended(list *v1.PodList, err error) {
	close(l.pods)
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, pod := range l.added {
		l.early.pods[pod.UID] = pod
	}
	l.listed = append(l.listed, l.all...)
	if err != nil {
		l.forget()
		return
	}
	l.complete = list.Continue == ""
}
