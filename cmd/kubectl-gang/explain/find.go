package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/output"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// types are the objects by which a gang can be named, by all their names.
var types = map[string]string{
	"job": "job", "jobs": "job", "job.batch": "job", "jobs.batch": "job",
	"pod": "pod", "pods": "pod", "po": "pod",
	"podgroup": "podgroup", "podgroups": "podgroup", "pg": "podgroup", "gang": "podgroup",
}

// find returns the gang that a user names, as namespace/name. Without a name it returns the only gang that waits in the
// namespace, or in all. If there are several or none, it prints them and returns an empty name.
func (o *options) find(ctx context.Context, p *output.Printer, name string) (string, error) {
	if o.all && name != "" {
		return "", errors.New("checking the flags: -A goes without a name; NAMESPACE/NAME is a gang of any namespace")
	}
	namespace, err := o.Namespace(o.all)
	if err != nil {
		return "", err
	}
	first, second, parted := strings.Cut(name, "/")
	kind := types[strings.ToLower(first)]
	switch {
	case parted && (first == "" || second == "" || strings.Contains(second, "/")):
		return "",
			fmt.Errorf("checking the name: %q is none of NAME, NAMESPACE/NAME, job/NAME, pod/NAME, podgroup/NAME", name)
	case name != "" && !parted:
		return namespace + "/" + name, nil
	case parted && kind == "":
		return name, nil
	case kind == "podgroup":
		return namespace + "/" + second, nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(readTimeout, o.Timeout))
	defer cancel()
	cluster, err := o.Cluster(o.Access)
	if err != nil {
		return "", err
	}
	if name == "" {
		return o.onlyOne(ctx, p, cluster, namespace)
	}
	return gangOf(ctx, cluster.Read, kind, namespace, second)
}

// gangOf returns the gang of a pod, or of the pods of a Job.
func gangOf(ctx context.Context, read reader, kind, namespace, name string) (string, error) {
	var list v1.PodList
	if err := read(ctx, "/api/v1/namespaces/"+namespace+"/pods", &list); err != nil {
		return "", err
	}
	pods := apiobjects.Pointers(list.Items)
	at := slices.IndexFunc(pods, func(pod *v1.Pod) bool {
		if kind == "pod" {
			return pod.Name == name
		}
		job := objectstate.ControllingJob(pod)
		return job != nil && job.Name == name
	})
	var pod *v1.Pod
	var job batchv1.Job
	switch {
	case at >= 0:
		pod = pods[at]
	case kind == "pod":
		return "", fmt.Errorf("there is no pod %s/%s%s", namespace, name, suggest(name, namesOf(pods)))
	default:
		if err := readJob(ctx, read, namespace, name, &job); err != nil {
			return "", err
		}
		pod = source.PodOf(&job)
	}
	if gang := gangNow(ctx, read, pod); gang != "" {
		return gang, nil
	}
	if err := gangspec.CheckPod(pod); err != nil && gangspec.AsksUnknownGang(pod) {
		return "", fmt.Errorf("%s %s/%s is in no gang: %w", kind, namespace, name, err)
	}
	why := "no label, annotation or field of its pods names one"
	if named := view.NamedGang(pod); named != "" {
		why = fmt.Sprintf("native PodGroup %s has the basic policy, so each of its pods is scheduled alone", named)
	}
	for _, ignored := range keys.FindIgnored(keys.Pod, pod.Annotations, pod.Labels) {
		why += "; " + ignored.Key + " " + ignored.Why
	}
	if kind == "job" && (at < 0 || readJob(ctx, read, namespace, name, &job) == nil) {
		for _, problem := range gangspec.IgnoredKeys(keys.Owner, &job) {
			why += "; on the Job " + problem.Key + " " + problem.Ignored
		}
	}
	if c := objectstate.WaitCondition(pod); c != nil {
		why += "; it waits: " + c.Message
	}
	return "", fmt.Errorf("%s %s/%s is in no gang: %s", kind, namespace, name, why)
}

// gangNow returns the gang that a pod is in, as namespace/name; empty for none. A pod whose native PodGroup cannot be
// read is in the gang that it names.
func gangNow(ctx context.Context, read reader, pod *v1.Pod) string {
	key, _, member := gangspec.GangOf(pod, func(key gangspec.Key) *gangspec.PodGroupDescription {
		group := &schedulingv1beta1.PodGroup{}
		path := "/apis/scheduling.k8s.io/v1beta1/namespaces/" + key.Namespace + "/podgroups/" + key.Name
		if read(ctx, path, group) != nil {
			return nil
		}
		return gangspec.ReadNative(group)
	})
	if !member {
		return ""
	}
	return key.String()
}

// readJob reads a Job. Where there is none it returns that, with the nearest name if Jobs can be listed.
func readJob(ctx context.Context, read reader, namespace, name string, job *batchv1.Job) error {
	path := "/apis/batch/v1/namespaces/" + namespace + "/jobs"
	err := read(ctx, path+"/"+name, job)
	if !apierrors.IsNotFound(err) {
		return err
	}
	var list batchv1.JobList
	if read(ctx, path, &list) != nil {
		list.Items = nil
	}
	return fmt.Errorf("there is no Job %s/%s%s", namespace, name, suggest(name, namesOf(apiobjects.Pointers(list.Items))))
}

func namesOf[T metav1.Object](objects []T) (names []string) {
	for _, object := range objects {
		names = append(names, object.GetName())
	}
	return names
}

// onlyOne returns the only gang of a namespace that waits, of all if it is empty. It lists those that do where they are
// several, and notes where there is none.
func (o *options) onlyOne(ctx context.Context, p *output.Printer, cluster *source.Cluster,
	namespace string) (string, error) {
	in, unread, err := readGangs(ctx, cluster.Read, namespace)
	if err != nil {
		return "", err
	}
	for _, err := range unread {
		o.Note("what PodGroups say is not known: %v", err)
	}
	if text := withBadValue(in.Pods); text != "" {
		o.Note("%s", text)
	}
	gangs := cluster.WithEvicted(ctx, namespace, view.Gangs(in))
	if len(unread) > 0 {
		gangs = slices.DeleteFunc(gangs, func(g view.Gang) bool {
			members := Naming(in.Pods, g.Key().String())
			return g.LeaveOpen() && !slices.ContainsFunc(members, objectstate.AwaitsNode)
		})
	}
	if text := beyondMinimum(gangs, in.Pods); text != "" {
		o.Note("%s", text)
	}
	waiting := slices.DeleteFunc(slices.Clone(gangs), func(g view.Gang) bool {
		return slices.Contains([]string{"bound", "ended"}, stands(&g))
	})
	if len(waiting) == 1 {
		return waiting[0].Key().String(), nil
	}
	where := ""
	if namespace != "" {
		where = " of namespace " + namespace
	}
	switch {
	case len(waiting) > 0:
		o.Note("%d gangs%s wait: name one of them", len(waiting), where)
	case len(gangs) > 0:
		o.Note("no gang%s waits; name one of those that kubectl gang list shows", where)
	case namespace == "":
		o.Note("there is no gang")
	default:
		o.Note("there is no gang in namespace %s: name another by -n, or see kubectl gang explain -A", namespace)
	}
	if len(waiting) == 0 && p.IsTable() {
		return "", nil
	}
	if !p.IsTable() {
		var reports []*Report
		for i := range waiting {
			g := &waiting[i]
			name := g.Key().String()
			r := newReport(name, Naming(in.Pods, name), g)
			r.Unasked = "several gangs wait: name one of them"
			r.tell(g, nil)
			r.judge(g)
			reports = append(reports, r)
		}
		return "", output.Print(p, explanationKind, nil, reports)
	}
	columns := output.Columns[view.Gang]{
		{Name: "NAME", Of: func(g view.Gang) any { return g.Name }},
		{Name: "STATE", Of: func(g view.Gang) any { return stands(&g) }},
		{Name: "MIN", Of: func(g view.Gang) any { return g.Minimum }},
		{Name: "REASON", Of: func(g view.Gang) any { return g.Reason }},
	}
	if namespace == "" {
		columns = append(output.Columns[view.Gang]{{Name: "NAMESPACE", Of: func(g view.Gang) any {
			return g.Namespace
		}}}, columns...)
	}
	return "", output.Print(p, explanationKind, columns, waiting)
}

// withBadValue says which pods wait because they ask for a gang by a value that is none; empty where no pod does.
func withBadValue(pods []*v1.Pod) string {
	var names []string
	hint := ""
	for _, pod := range pods {
		if objectstate.AwaitsNode(pod) && gangspec.AsksUnknownGang(pod) {
			names = append(names, pod.Namespace+"/"+pod.Name)
			hint = fmt.Sprintf("pod/%s -n %s", pod.Name, pod.Namespace)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s wait%s with a value of %s that is none: %s; see kubectl gang explain %s",
		words.Count(len(names), "pod"), singular(len(names)), v1alpha1.GangAnnotation, words.FirstOf(named, names), hint)
}

// beyondMinimum says how many pods wait of gangs that run with fewer; empty for none.
func beyondMinimum(gangs []view.Gang, pods []*v1.Pod) string {
	waiting := map[string]int{} // by gang
	for _, pod := range pods {
		if objectstate.AwaitsNode(pod) {
			waiting[view.NamedGang(pod)]++
		}
	}
	var parts []string
	total := 0
	for i := range gangs {
		name := gangs[i].Key().String()
		if n := waiting[name]; n > 0 && stands(&gangs[i]) == "bound" {
			parts = append(parts, words.Count(n, "pod")+" beyond the minimum of "+name)
			total += n
		}
	}
	if total == 0 {
		return ""
	}
	return words.FirstOf(named, parts) + " wait" + singular(total)
}

// readGangs reads what the gangs of a namespace are made of, of all if it is empty. unread is why PodGroups could not
// be read.
func readGangs(ctx context.Context, read reader, namespace string) (gangs view.GangsIn, unread []error, err error) {
	var pods v1.PodList
	var groups coscheduling.PodGroupList
	var natives schedulingv1beta1.PodGroupList
	in := ""
	if namespace != "" {
		in = "/namespaces/" + namespace
	}
	if err := read(ctx, "/api/v1"+in+"/pods", &pods); err != nil {
		return view.GangsIn{}, nil, err
	}
	for path, list := range map[string]any{
		"/apis/scheduling.x-k8s.io/v1alpha1" + in + "/podgroups": &groups,
		"/apis/scheduling.k8s.io/v1beta1" + in + "/podgroups":    &natives,
	} {
		if err := read(ctx, path, list); err != nil && !apierrors.IsNotFound(err) {
			unread = append(unread, err)
		}
	}
	return view.GangsIn{
		Pods: apiobjects.Pointers(pods.Items), PodGroups: apiobjects.Pointers(groups.Items),
		Natives: apiobjects.Pointers(natives.Items),
	}, unread, nil
}

// ownersGangError is that a name is no gang's, but that of the owner of the pods of one gang, or of a Job.
type ownersGangError struct{ name, gang string }

func (e *ownersGangError) Error() string {
	return fmt.Sprintf("there is no gang %q: did you mean %q?", e.name, e.gang)
}

// ownersGang returns the only one of some gangs that has the name of its owner; empty where that is none, or several.
func ownersGang(name string, gangs []string) (gang string) {
	for _, kind := range []gangspec.OwnerKind{gangspec.OwnerJob, gangspec.OwnerJobSet, gangspec.OwnerLeaderWorkerSet} {
		switch one := (gangspec.Owner{Kind: kind, Name: name}).GangName(); {
		case !slices.Contains(gangs, one):
		case gang != "":
			return ""
		default:
			gang = one
		}
	}
	return gang
}

// unknown returns the error that there is no gang of a name, with the nearest that there is, or what the Job of that
// name is in, or why it makes no pods. aside is what else is known; empty for nothing.
func (o *options) unknown(ctx context.Context, read reader, gang, aside string) error {
	namespace, name, _ := strings.Cut(gang, "/")
	if aside != "" {
		aside = "; " + aside
	}
	var job batchv1.Job
	path := "/apis/batch/v1/namespaces/" + namespace + "/jobs/" + strings.TrimPrefix(name, "job.")
	hasJob := read(ctx, path, &job) == nil
	if hasJob && jobsuspension.IsSuspended(&job) && gangNow(ctx, read, source.PodOf(&job)) != "" {
		return fmt.Errorf("there is no gang %q yet: %s", gang, suspended(&job))
	}
	in, _, err := readGangs(ctx, read, namespace)
	if err != nil {
		return fmt.Errorf("there is no gang %q%s", gang, aside)
	}
	gangs := view.Gangs(in)
	var names []string
	for i := range gangs {
		if gangs[i].Name != name { // one whose profile has no gangs is there, and is none
			names = append(names, gangs[i].Name)
		}
	}
	if owners := ownersGang(name, names); owners != "" {
		return &ownersGangError{gang, namespace + "/" + owners}
	}
	if hasJob && job.Name == name { // the user may mean job/NAME
		switch of, err := gangOf(ctx, read, "job", namespace, name); {
		case err != nil:
			return fmt.Errorf("%w%s", err, aside)
		case of != gang:
			return &ownersGangError{gang, of}
		}
	}
	if hint := suggest(name, names); hint != "" {
		return fmt.Errorf("there is no gang %q%s%s", gang, hint, aside)
	}
	if len(gangs) == 0 {
		return fmt.Errorf("there is no gang %q, nor any other in namespace %s; GANG is NAME, NAMESPACE/NAME, job/NAME, "+
			"pod/NAME or podgroup/NAME%s",
			gang, namespace, aside)
	}
	return fmt.Errorf("there is no gang %q: no pod is in it, and there is no PodGroup of that name; "+
		"see kubectl gang list%s", gang, aside)
}

// suggest returns a question for the nearest of some names; empty where none is near.
func suggest(name string, names []string) string {
	if nearest := keys.Nearest(name, names); nearest != "" {
		return fmt.Sprintf(": did you mean %q?", nearest)
	}
	return ""
}
