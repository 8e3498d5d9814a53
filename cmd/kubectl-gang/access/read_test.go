package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// answering returns an access with a client for which a function answers lists.
func answering(t *testing.T, list func(list client.ObjectList, o client.ListOptions) error) *Access {
	t.Helper()
	c := fake.NewClientBuilder().WithScheme(apiobjects.Scheme()).WithRESTMapper(Mapper()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, options ...client.ListOption) error {
			o := client.ListOptions{}
			return list(l, *o.ApplyOptions(options))
		},
	}).Build()
	return &Access{client: func() (client.Client, error) { return c, nil }}
}

// TestRead: all pages are read, each object is one of its own, and the options hold for each page.
func TestRead(t *testing.T) {
	var asked []string
	a := answering(t, func(list client.ObjectList, o client.ListOptions) error {
		asked = append(asked, fmt.Sprintf("%d of %s from %q", o.Limit, o.Namespace, o.Continue))
		pods := list.(*v1.PodList)
		for i := range 2 {
			pod := v1.Pod{}
			pod.Name = fmt.Sprintf("p%s-%d", o.Continue, i)
			pods.Items = append(pods.Items, pod)
		}
		pods.Continue = map[string]string{"": "1", "1": "2", "2": ""}[o.Continue]
		return nil
	})
	var pods []*v1.Pod
	must.Succeed(t, a.Read(t.Context(), &v1.PodList{}, apiobjects.Into(&pods), client.InNamespace("team")))
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"p-0", "p-1", "p1-0", "p1-1", "p2-0", "p2-1"}, names); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`2000 of team from ""`, `2000 of team from "1"`, `2000 of team from "2"`}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// TestReadFails: an error names the verb and the resource; only a kind that is not served is none.
func TestReadFails(t *testing.T) {
	notServed := &apierrors.StatusError{}
	notServed.ErrStatus.Code, notServed.ErrStatus.Reason = 404, "NotFound"
	refused := apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "queues"}, "", errors.New("no"))
	const isRefused = "listing queues.scheduling.lockstep.dev: queues.scheduling.lockstep.dev is forbidden"
	for sentence, c := range map[string]struct {
		err        error
		unserved   bool
		unasked    error
		want, note string
	}{
		"the kind is not served":                  {err: notServed, note: "note: the cluster does not serve queues.scheduling.lockstep.dev\n"},
		"the user may not":                        {err: refused, want: isRefused},
		"the user may not, and there is none":     {err: refused, unserved: true, note: "note: the cluster does not serve queues.scheduling.lockstep.dev\n"},
		"the user may not, and it cannot be told": {err: refused, unserved: true, unasked: errors.New("no answer"), want: isRefused},
	} {
		t.Run(sentence, func(t *testing.T) {
			var notes bytes.Buffer
			a := answering(t, func(client.ObjectList, client.ListOptions) error { return c.err })
			a.IOStreams = genericiooptions.IOStreams{ErrOut: &notes}
			a.served = func(schema.GroupVersionResource) (bool, error) { return !c.unserved, c.unasked }
			var queues []*v1alpha1.Queue
			err := a.IgnoreNotServed(a.Read(t.Context(), &v1alpha1.QueueList{}, apiobjects.Into(&queues)))
			if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if notes.String() != c.note {
				t.Errorf("noted %q, want %q", notes.String(), c.note)
			}
		})
	}
}
