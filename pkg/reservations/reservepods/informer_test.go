package reservepods

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler"
)

// TestInformerIsThatOfTheScheduler: the informer asks for those of the API server's pods that
// kube-scheduler's asks for, and keeps what it keeps.
func TestInformerIsThatOfTheScheduler(t *testing.T) {
	follow := func(factoryOf func(kubernetes.Interface) informers.SharedInformerFactory) (asked []string, pods map[string]*v1.Pod) {
		pod := realPod("real", "")
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
		client := fake.NewClientset(pod)
		factory := factoryOf(client)
		informer := factory.Core().V1().Pods().Informer()
		factory.StartWithContext(t.Context())
		if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
			t.Fatal("the informer did not sync")
		}
		for begin := time.Now(); len(client.Actions()) < 2 && time.Since(begin) < time.Minute; {
			time.Sleep(time.Millisecond)
		}
		for _, action := range client.Actions() {
			switch action := action.(type) {
			case clienttesting.ListActionImpl:
				asked = append(asked, fmt.Sprint("list ", action.Namespace, action.ListRestrictions))
			case clienttesting.WatchActionImpl:
				asked = append(asked, fmt.Sprint("watch ", action.Namespace, action.WatchRestrictions))
			}
		}
		pods = map[string]*v1.Pod{}
		for _, object := range informer.GetStore().List() {
			pods[object.(*v1.Pod).Name] = object.(*v1.Pod)
		}
		return asked, pods
	}
	reserve := reservePod("a").Obj()
	wantAsked, want := follow(func(client kubernetes.Interface) informers.SharedInformerFactory {
		return scheduler.NewInformerFactory(client, 0, nil)
	})
	store := storeOf(t, reserve)
	want[reserve.Name] = get(t, store, reserve.Name)
	asked, got := follow(func(client kubernetes.Interface) informers.SharedInformerFactory {
		factory := informers.NewSharedInformerFactory(client, 0)
		factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
			return NewInformer(store, client, nil)
		})
		return factory
	})
	expect(t, "asked", wantAsked, asked)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
}
