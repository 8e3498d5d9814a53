package lockstepcontroller_test

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	pgclientset "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	pgclient "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/typed/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// madeGroups are the PodGroups of a namespace in which Jobs ask for gangs.
type madeGroups struct {
	*namespace
	client pgclient.PodGroupInterface
	jobs   batchclient.JobInterface
}

// TestGangsByOwner: PodGroups of Jobs whose pods ask for them are made under the roles that are shipped.
func TestGangsByOwner(t *testing.T) {
	t.Parallel()
	c := start(t, manifest(t, "crds", crd))
	controller := run(t, c, "controller")
	n := newNamespace(t, c, "owners")
	g := &madeGroups{namespace: n, client: pgclientset.NewForConfigOrDie(c.RESTConfig()).SchedulingV1alpha1().PodGroups(n.name), jobs: c.Clientset().BatchV1().Jobs(n.name)}
	t.Run("SomebodyElsesStays", g.testSomebodyElses)
	t.Run("FollowsItsJob", g.testFollows)
	if log := controller.log(t); strings.Contains(log, "forbidden") || strings.Contains(log, "Reconciler error") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

func (g *madeGroups) testSomebodyElses(t *testing.T) {
	own := &schedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "job.own"}, Spec: schedulingv1alpha1.PodGroupSpec{MinMember: 1}}
	if _, err := g.client.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.createJob(t, "own", 3)
	eventually(t, g.namespace, "own", "PodGroupTaken")
	if group := g.minimum(t, "job.own", 1); len(group.OwnerReferences)+len(group.Labels) > 0 {
		t.Errorf("PodGroup job.own was changed: %v", group.ObjectMeta)
	}
}

// It follows the Job, keeps what users add, is made again where it is deleted, and goes with the Job.
func (g *madeGroups) testFollows(t *testing.T) {
	g.createJob(t, "train", 3)
	made := g.minimum(t, "job.train", 3)
	if owner := metav1.GetControllerOf(made); owner == nil || owner.Kind != "Job" || owner.Name != "train" {
		t.Errorf("PodGroup job.train has the owner %v, want Job train", owner)
	}
	const ours = `{"metadata": {"annotations": {"scheduling.lockstep.dev/required-topology": "rack"}}, "spec": {"minMember": 1}}`
	if _, err := g.client.Patch(t.Context(), "job.train", types.MergePatchType, []byte(ours), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if made = g.minimum(t, "job.train", 3); made.Annotations[v1alpha1.RequiredTopologyAnnotation] != "rack" {
		t.Errorf("the annotations are %v: what users add is to stay", made.Annotations)
	}
	if _, err := g.jobs.Patch(t.Context(), "train", types.MergePatchType, []byte(`{"spec": {"parallelism": 2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	g.minimum(t, "job.train", 2)
	if err := g.client.Delete(t.Context(), "job.train", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again := g.minimum(t, "job.train", 2); again.UID == made.UID {
		t.Error("PodGroup job.train was not deleted")
	}
	background := metav1.DeletePropagationBackground
	if err := g.jobs.Delete(t.Context(), "train", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "PodGroup job.train goes with the Job", func() error {
		_, err := g.client.Get(t.Context(), "job.train", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// minimum waits until a PodGroup has a minimum.
func (g *madeGroups) minimum(t *testing.T, name string, want int32) (group *schedulingv1alpha1.PodGroup) {
	t.Helper()
	await.NoError(t, fmt.Sprintf("PodGroup %s has a minimum of %d", name, want), func() (err error) {
		if group, err = g.client.Get(t.Context(), name, metav1.GetOptions{}); err == nil && group.Spec.MinMember != want {
			err = fmt.Errorf("it is %d", group.Spec.MinMember)
		}
		return err
	})
	return group
}

// eventually waits for an event on an object.
func eventually(t *testing.T, n *namespace, object, reason string) {
	t.Helper()
	await.NoError(t, fmt.Sprintf("event %s on %s", reason, object), func() error {
		list, err := n.cluster.Clientset().EventsV1().Events(n.name).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Reason == reason && list.Items[i].Regarding.Name == object {
				return nil
			}
		}
		return fmt.Errorf("none among %d", len(list.Items))
	})
}

func (g *madeGroups) createJob(t *testing.T, name string, parallelism int32) {
	t.Helper()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Parallelism: &parallelism,
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.GangAnnotation: v1alpha1.GangOwner}},
				Spec: v1.PodSpec{
					SchedulerName: "lockstep-scheduler", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "main", Image: "none"}},
				},
			},
		},
	}
	if _, err := g.jobs.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
