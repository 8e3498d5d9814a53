package reservepods

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestNamesakes: a pod that was deleted and made again while the watch was cut comes as two.
func TestNamesakes(t *testing.T) {
	client := fake.NewClientset()
	var mu sync.Mutex
	lists := 0
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		lists++
		pod := realPod("s-0", "")
		pod.UID, pod.ResourceVersion = types.UID(fmt.Sprint(lists)), fmt.Sprint(lists)
		if pod.Spec.NodeName = "node-0"; lists > 1 {
			pod.Spec.NodeName = ""
		}
		return true, &v1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(lists)}, Items: []v1.Pod{*pod}}, nil
	})
	client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		mu.Lock()
		defer mu.Unlock()
		stream := watch.NewRaceFreeFake()
		if lists == 1 { // what was missed is not known any more
			stream.Action(watch.Error, &apierrors.NewResourceExpired("too old").ErrStatus)
		}
		return true, stream, nil
	})
	informer := NewInformer(storeOf(t), client, nil)
	var told []string
	note := func(what string) func(any) {
		return func(object any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(what, " ", object.(*v1.Pod).UID))
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note("new"), DeleteFunc: note("gone"), UpdateFunc: func(_, now any) { note("changed")(now) },
	}); err != nil {
		t.Fatal(err)
	}
	go informer.Run(t.Context().Done())
	want := []string{"new 1", "gone 1", "new 2"}
	await.NoError(t, "both pods are told of", func() error {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told, want) {
			return fmt.Errorf("told %q, want %q", told, want)
		}
		return nil
	})
}
