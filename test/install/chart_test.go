package install

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/yaml"

	lockstepconfig "github.com/lockstep-sh/lockstep/apis/config"
	_ "github.com/lockstep-sh/lockstep/apis/config/scheme"
)

// hash is what kustomize appends to the names of ConfigMaps.
var hash = regexp.MustCompile(`(lockstep-[a-z]+-(?:config|policy))-[a-z0-9]{10}\b`)

// plain returns a rendered text without what may differ: the labels of a release, the checksum of a configuration (of
// which kustomize makes a name), and empty fields.
func plain(t *testing.T, text string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for key, object := range objects(t, hash.ReplaceAllString(text, "$1")) {
		for _, label := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "helm.sh/chart"} {
			remove(object, "metadata", "labels", label)
		}
		for _, path := range podTemplates {
			remove(object, append(slices.Clip(path), "metadata", "annotations", "checksum/config")...)
		}
		all[key] = object.Object
	}
	return all
}

// remove removes a field, and what it is in if nothing else is there.
func remove(object *unstructured.Unstructured, path ...string) {
	unstructured.RemoveNestedField(object.Object, path...)
	parent := path[:len(path)-1]
	if rest, found, _ := unstructured.NestedMap(object.Object, parent...); found && len(rest) == 0 {
		unstructured.RemoveNestedField(object.Object, parent...)
	}
}

// podTemplates are where workloads have theirs.
var podTemplates = [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}}

func TestChartIsTheManifests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ values, overlays []string }{
		"by default, base and keys":    {nil, []string{"base", "keys"}},
		"the descheduler":              {[]string{"descheduler.enabled=true"}, []string{"base", "keys", "descheduler/workload"}},
		"its CronJob":                  {[]string{"descheduler.enabled=true", "descheduler.schedule=*/10 * * * *"}, []string{"base", "keys", "descheduler-cron/workload"}},
		"the policy":                   {[]string{"gangsByOwner.policy=true"}, []string{"base", "keys", "gangs-by-owner"}},
		"monitoring":                   {[]string{"monitoring.enabled=true"}, []string{"base", "keys", "monitoring"}},
		"the right to mark":            {[]string{"controller.nodeMarks.rbac=true"}, []string{"base", "keys", "rbac/node-marks.yaml"}},
		"the right to ask":             {[]string{"scheduler.provisioningRequests=true"}, []string{"base", "keys", "rbac/provisioning-requests.yaml"}},
		"no policies for keys":         {[]string{"keys.policies=false"}, []string{"base"}},
		"a configuration of one's own": {[]string{"file:scheduler.config=" + filepath.Join(root, "manifests/config/beside-default-scheduler.yaml")}, []string{"base", "keys"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, got := plain(t, kustomize(t, tc.overlays...)), plain(t, template(t, system, append(tc.values, "images.tag=latest")...))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-kustomize +chart):\n%s", diff)
			}
		})
	}
	t.Run("the CRDs", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob(filepath.Join(root, "manifests", "crds", "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("CRDs: %d, %v", len(files), err)
		}
		for i, file := range files {
			files[i] = filepath.Join("crds", filepath.Base(file))
		}
		if diff := cmp.Diff(plain(t, kustomize(t, files...)), plain(t, mustRun(t, "helm", "show", "crds", chart()))); diff != "" {
			t.Errorf("CRDs (-manifests +chart):\n%s", diff)
		}
	})
}

// TestChartInItsNamespace: nothing of the release is in another namespace, and nothing refers to one.
func TestChartInItsNamespace(t *testing.T) {
	t.Parallel()
	const reader = "RoleBinding kube-system/lockstep-scheduler:authentication-reader"
	rendered := objects(t, template(t, "gangs", "descheduler.enabled=true", "controller.nodeMarks.enabled=true", "monitoring.enabled=true", "monitoring.serviceAccount=scraper"))
	if rendered[reader] == nil {
		t.Errorf("no %s, the binding to a Role that is there; got %v", reader, slices.Sorted(maps.Keys(rendered)))
	}
	for key, object := range rendered {
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if key != reader && strings.Contains(string(text), system) {
			t.Errorf("%s refers to %s: %s", key, system, text)
		}
		for _, subject := range list(object, "subjects") {
			if namespace := subject["namespace"]; namespace != "gangs" && subject["name"] != "scraper" {
				t.Errorf("%s: subject in namespace %q", key, namespace)
			}
		}
	}
}

func list(object *unstructured.Unstructured, path ...string) (items []map[string]any) {
	all, _, _ := unstructured.NestedSlice(object.Object, path...)
	for _, item := range all {
		items = append(items, item.(map[string]any))
	}
	return items
}

func TestChartWritesValues(t *testing.T) {
	t.Parallel()
	rendered := objects(t, template(t, "gangs",
		"images.registry=host/project/", "images.tag=v1", "images.pullPolicy=Always", "images.pullSecrets[0].name=login",
		"scheduler.replicas=3", "scheduler.args={--v=4}", "scheduler.resources.limits.memory=1Gi", "scheduler.priorityClassName=own",
		"scheduler.podDisruptionBudget.maxUnavailable=1", "scheduler.nodeSelector.pool=system", "scheduler.podLabels.team=a",
		"scheduler.podLabels.app\\.kubernetes\\.io/name=other", "scheduler.tolerations[0].operator=Exists",
		"scheduler.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].key=metadata.name",
		"controller.image=elsewhere/controller@sha256:0", "controller.nodeMarks.enabled=true", "controller.podAnnotations.a=b",
		"controller.extraEnv[0].name=GODEBUG", "controller.extraVolumes[0].name=tls", "controller.extraVolumeMounts[0].name=tls",
		"controller.serviceAccount.name=own", "controller.serviceAccount.annotations.role=b", "page.enabled=true", "page.ingress.host=gangs.test",
		"descheduler.podDisruptionBudget.maxUnavailable=1", // it is not enabled
	))
	for _, tc := range []struct{ object, path, want string }{
		{"Deployment gangs/lockstep-scheduler", "spec replicas", "3"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec containers", "image:host/project/lockstep-scheduler:v1 imagePullPolicy:Always"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec containers", "args:[--config=/etc/lockstep/config.yaml --secure-port=10259 --v=2 --v=4]"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec containers", "resources:map[limits:map[memory:1Gi] requests:map[cpu:100m memory:256Mi]]"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec", "priorityClassName:own"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec", "imagePullSecrets:[map[name:login]]"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec", "nodeSelector:map[pool:system]"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec", "tolerations:[map[operator:Exists]]"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec", "affinity:map[nodeAffinity:"},
		{"Deployment gangs/lockstep-scheduler", "spec template metadata labels", "map[app.kubernetes.io/name:lockstep-scheduler app.kubernetes.io/part-of:lockstep team:a]"},
		{"PodDisruptionBudget gangs/lockstep-scheduler", "spec", "map[maxUnavailable:1 selector:map[matchLabels:map[app.kubernetes.io/name:lockstep-scheduler]]]"},
		{"Deployment gangs/lockstep-controller", "spec template spec containers", "image:elsewhere/controller@sha256:0"},
		{"Deployment gangs/lockstep-controller", "spec template spec containers", "--leader-elect-namespace=gangs"},
		{"Deployment gangs/lockstep-controller", "spec template spec containers", "--reservation-mark-nodes"},
		{"Deployment gangs/lockstep-controller", "spec template metadata annotations", "map[a:b checksum/config:"},
		{"ClusterRoleBinding /lockstep-controller:node-marks", "roleRef", "name:lockstep-controller:node-marks"},
		{"Deployment gangs/lockstep-controller", "spec template spec containers", "--page-bind-address=:8444"},
		{"Deployment gangs/lockstep-controller", "spec template spec containers", "env:[map[name:GODEBUG]]"},
		{"Deployment gangs/lockstep-controller", "spec template spec containers", "readOnly:true] map[name:tls]]"},
		{"Deployment gangs/lockstep-controller", "spec template spec volumes", "name:config] map[name:tls]]"},
		{"Deployment gangs/lockstep-controller", "spec template spec serviceAccountName", "own"},
		{"ServiceAccount gangs/own", "metadata annotations", "map[role:b]"},
		{"ClusterRoleBinding /lockstep-controller", "subjects", "[map[kind:ServiceAccount name:own namespace:gangs]]"},
		{"RoleBinding gangs/lockstep-controller:leader-election", "subjects", "[map[kind:ServiceAccount name:own namespace:gangs]]"},
		{"Deployment gangs/lockstep-scheduler", "spec template spec serviceAccountName", "lockstep-scheduler"},
		{"Ingress gangs/lockstep-page", "spec rules", "host:gangs.test"},
	} {
		if got := field(rendered[tc.object], tc.path); !strings.Contains(got, tc.want) {
			t.Errorf("%s, %s: got %s, want %s in it", tc.object, tc.path, got, tc.want)
		}
	}
	if rendered["PodDisruptionBudget gangs/lockstep-descheduler"] != nil {
		t.Error("a PodDisruptionBudget of a descheduler that is not there")
	}
}

// TestServiceOfThePage: it leads to the port where the controller serves it.
func TestServiceOfThePage(t *testing.T) {
	t.Parallel()
	rendered := objects(t, template(t, system, "page.enabled=true"))
	for _, port := range list(rendered["Service kube-system/lockstep-page"], "spec", "ports") {
		args := field(rendered["Deployment kube-system/lockstep-controller"], "spec template spec containers")
		if flag := fmt.Sprintf("--page-bind-address=:%v", port["targetPort"]); !strings.Contains(args, flag) {
			t.Errorf("the Service leads to port %v, and the controller lacks %s", port["targetPort"], flag)
		}
	}
	selector := field(rendered["Service kube-system/lockstep-page"], "spec selector")
	if labels := field(rendered["Deployment kube-system/lockstep-controller"], "spec selector matchLabels"); selector != labels {
		t.Errorf("the Service selects %s, want %s", selector, labels)
	}
}

// scraped are the jobs of manifests/monitoring/scrape.yaml, and the names of their ports.
func scraped(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "manifests", "monitoring", "scrape.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Jobs []struct {
			Name    string `json:"job_name"`
			Relabel []struct {
				Regex string `json:"regex"`
			} `json:"relabel_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ports := map[string]string{}
	for _, job := range file.Jobs {
		ports[job.Name] = job.Relabel[0].Regex
	}
	return ports
}

// TestPodsThatAreScraped: the PodMonitor and the NetworkPolicy find each job of scrape.yaml, by labels and a port that
// its pods have.
func TestPodsThatAreScraped(t *testing.T) {
	t.Parallel()
	rendered := objects(t, template(t, system, "monitoring.podMonitor.enabled=true", "networkPolicy.enabled=true", "descheduler.enabled=true"))
	monitor, policy := rendered["PodMonitor kube-system/lockstep"], rendered["NetworkPolicy kube-system/lockstep"]
	jobs := scraped(t)
	if len(jobs) != 3 {
		t.Errorf("scrape.yaml has jobs %v, want 3", jobs)
	}
	for job, port := range jobs {
		deployment := rendered["Deployment kube-system/"+job]
		labels, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "labels")
		if name, _, _ := unstructured.NestedString(monitor.Object, "spec", "jobLabel"); labels[name] != job {
			t.Errorf("%s: the label %q of its pods is %q, want the name of the job", job, name, labels[name])
		}
		for object, path := range map[*unstructured.Unstructured]string{monitor: "selector", policy: "podSelector"} {
			selected, _, _ := unstructured.NestedStringMap(object.Object, "spec", path, "matchLabels")
			if len(selected) == 0 || !klabels.SelectorFromSet(selected).Matches(klabels.Set(labels)) {
				t.Errorf("%s %v does not select %v", object.GetKind(), selected, labels)
			}
		}
		byPort := func(item map[string]any) bool { return item["port"] == port }
		if !strings.Contains(field(deployment, "spec template spec containers"), "name:"+port) ||
			!slices.ContainsFunc(list(monitor, "spec", "podMetricsEndpoints"), byPort) ||
			!strings.Contains(field(policy, "spec ingress"), "map[port:"+port+"]") {
			t.Errorf("%s: port %s is not in the deployment, the PodMonitor and the NetworkPolicy", job, port)
		}
	}
	for _, endpoint := range list(monitor, "spec", "podMetricsEndpoints") {
		want := map[string]any{
			"port": endpoint["port"], "scheme": "https", "tlsConfig": map[string]any{"insecureSkipVerify": true},
			"authorization": map[string]any{"credentials": map[string]any{"name": "lockstep-metrics", "key": "token"}},
		}
		if diff := cmp.Diff(want, endpoint); diff != "" {
			t.Errorf("endpoint of the PodMonitor (-want +got):\n%s", diff)
		}
	}
	if got := rendered["Secret kube-system/lockstep-metrics"].GetAnnotations()["kubernetes.io/service-account.name"]; rendered["ServiceAccount kube-system/"+got] == nil {
		t.Errorf("the token is that of %q, which is not there", got)
	}
}

// TestPrometheusRule: its groups are those of alerts.yaml, with whole links.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(root, "manifests", "monitoring", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(data), "runbook_url: ", "runbook_url: https://docs.test/")), &want); err != nil {
		t.Fatal(err)
	}
	rule := objects(t, template(t, system, "monitoring.prometheusRule.enabled=true", "monitoring.prometheusRule.runbooks=https://docs.test/",
		"monitoring.prometheusRule.labels.release=prometheus"))["PrometheusRule kube-system/lockstep"]
	if diff := cmp.Diff(want, rule.Object["spec"]); diff != "" {
		t.Errorf("rules (-alerts.yaml +chart):\n%s", diff)
	}
	if rule.GetLabels()["release"] != "prometheus" {
		t.Errorf("labels %v, want that of the values", rule.GetLabels())
	}
}

// TestNetworkPolicy: the page is for all, unless values say who may reach it; metrics are for the namespace of
// Prometheus.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	const prometheus, proxy = "from:[map[namespaceSelector:map[matchLabels:map[kubernetes.io/metadata.name:monitoring]]]]", "from:[map[podSelector:map[]]]"
	for name, tc := range map[string]struct {
		values []string
		want   string
	}{
		"without the page":  {nil, "[map[" + prometheus + " ports:[map[port:https] map[port:https-metrics]]]]"},
		"the page, for all": {[]string{"page.enabled=true"}, "[map[" + prometheus + " ports:[map[port:https] map[port:https-metrics]]] map[ports:[map[port:8444]]]]"},
		"for some": {[]string{"page.enabled=true", "json:networkPolicy.pageFrom=[{\"podSelector\":{}}]", "json:networkPolicy.metricsFrom=[{\"podSelector\":{}}]"},
			"[map[" + proxy + " ports:[map[port:https] map[port:https-metrics]]] map[" + proxy + " ports:[map[port:8444]]]]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := objects(t, template(t, system, append(tc.values, "networkPolicy.enabled=true")...))["NetworkPolicy kube-system/lockstep"]
			if got := field(policy, "spec ingress"); got != tc.want {
				t.Errorf("ingress: %s\nwant %s", got, tc.want)
			}
			if got := field(policy, "spec policyTypes"); got != "[Ingress]" {
				t.Errorf("policyTypes: %s, want the way in, and nothing said about the way out", got)
			}
		})
	}
}

// TestChartRollsPodsWithTheirConfiguration: the pods of a deployment are replaced when what they read at their start is
// another one.
func TestChartRollsPodsWithTheirConfiguration(t *testing.T) {
	t.Parallel()
	sum := func(values ...string) string {
		rendered := objects(t, template(t, system, values...))
		return field(rendered["Deployment kube-system/lockstep-scheduler"], "spec template metadata annotations")
	}
	if one, other := sum(), sum("scheduler.mode=Instead"); one == other || one != sum("scheduler.replicas=5") {
		t.Errorf("checksums: %s by default, %s with another configuration", one, other)
	}
}

// TestChartConfigures: what the chart makes of a configuration is one that the scheduler reads.
func TestChartConfigures(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"Beside": "gangs/lockstep-scheduler", "Instead": "kube-system/kube-scheduler"} {
		config := configured(t, "scheduler.mode="+mode)
		if got := config.LeaderElection.ResourceNamespace + "/" + config.LeaderElection.ResourceName; got != want {
			t.Errorf("mode %s: lease %s, want %s", mode, got, want)
		}
		queues := configured(t, "scheduler.mode="+mode, "scheduler.fairShare.enabled=true", "scheduler.pluginArgs.Gang.defaultWaitTime=30m", "scheduler.pluginArgs.FairShare.window=8")
		for _, profile := range queues.Profiles {
			if all := profile.Plugins.MultiPoint.Enabled; all[len(all)-1].Name != "FairShare" {
				t.Errorf("mode %s, profile %s: enabled are %v, want FairShare last", mode, profile.SchedulerName, all)
			}
			for _, plugin := range profile.PluginConfig {
				switch args := plugin.Args.(type) {
				case *lockstepconfig.GangArgs:
					if args.DefaultWaitTime.Duration != 30*time.Minute {
						t.Errorf("mode %s, profile %s: defaultWaitTime %s, want 30m", mode, profile.SchedulerName, args.DefaultWaitTime.Duration)
					}
				case *lockstepconfig.FairShareArgs:
					if args.Window != 8 {
						t.Errorf("mode %s, profile %s: window %d, want 8", mode, profile.SchedulerName, args.Window)
					}
				}
			}
		}
	}
}

// configured returns the configuration that the chart makes of values, as the scheduler reads it.
func configured(t *testing.T, values ...string) *schedconfig.KubeSchedulerConfiguration {
	t.Helper()
	rendered := objects(t, template(t, "gangs", values...))
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := rendered["ConfigMap gangs/lockstep-scheduler-config"].Object["data"].(map[string]any)["config.yaml"].(string)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	logger, _ := ktesting.NewTestContext(t)
	config, err := options.LoadConfigFromFile(logger, file)
	if err != nil {
		t.Fatalf("values %q: %v", values, err)
	}
	return config
}

func TestChartRefusesValues(t *testing.T) {
	t.Parallel()
	training := strings.Join(trainingPool, ",")
	for value, want := range map[string]string{
		"scheduler.mode=beside":                                               "at '/scheduler/mode': value must be one of 'Beside', 'Instead'",
		"scheduler.replica=3":                                                 "at '/scheduler': additional properties 'replica' not allowed",
		"schedulers.replicas=3":                                               "additional properties 'schedulers' not allowed",
		"scheduler.serviceAccount.create=false":                               "at '/scheduler/serviceAccount': additional properties 'create' not allowed",
		"controller.extraEnv[0]=A=1":                                          "at '/controller/extraEnv/0': got string, want object",
		"page.ingress.host=gangs.test":                                        "page.ingress.host is set, and page.enabled is not",
		"networkPolicy.from=x":                                                "at '/networkPolicy': additional properties 'from' not allowed",
		"controller.replicas=-1":                                              "at '/controller/replicas': minimum",
		"controller.args={-v=4}":                                              "at '/controller/args/0'",
		"images.pullPolicy=Sometimes":                                         "at '/images/pullPolicy'",
		"images.tag=a/b":                                                      "at '/images/tag'",
		"descheduler.enabled=yes":                                             "at '/descheduler/enabled': got string, want boolean",
		"scheduler.config=x,scheduler.fairShare.enabled=true":                 "scheduler.config is the whole configuration",
		"scheduler.pluginArgs.FairShare.window=8":                             "scheduler.pluginArgs.FairShare is set, and scheduler.fairShare.enabled is not",
		"scheduler.podDisruptionBudget.maxUnavailable=many":                   "at '/scheduler/podDisruptionBudget/maxUnavailable'",
		"pools[0].name=a":                                                     "at '/pools/0': missing properties 'nodeSelector', 'taint'",
		"pools[0].nodeSelector=a":                                             "at '/pools/0/nodeSelector': got string, want object",
		training + ",pools[0].nodeSelector.zone=a":                            "at '/pools/0/nodeSelector': maxProperties: got 2, want 1",
		training + ",pools[0].name=it's":                                      "at '/pools/0/name': 'it\\'s' does not match pattern",
		training + ",pools[0].taint.effect=PreferNoSchedule":                  "at '/pools/0/taint/effect': value must be one of 'NoSchedule', 'NoExecute'",
		training + ",pools[0].name=" + strings.Repeat("a", 64):                "at '/pools/0/name': maxLength: got 64, want 63",
		training + "," + strings.ReplaceAll(training, "pools[0]", "pools[1]"): "pools: two have the name training: give each a name of its own",
		training + ",scheduler.config=addedAffinity: {}":                      "pools: scheduler.config has no profiles",
		training + ",scheduler.config=profiles: [{percentageOfNodesToScore: 5}] # addedAffinity:": "a profile of the schedulerName default-scheduler, or of none",
		training + ",scheduler.mode=Instead":                                                      "pools: they are for a scheduler beside the default one",
		training + ",scheduler.config=x":                                                          "pools: scheduler.config is the whole configuration",
		training + ",scheduler.pluginArgs.NodeAffinity.x=y":                                       "scheduler.pluginArgs.NodeAffinity: it follows from pools",
	} {
		_, err := tool(t, "helm", "template", "lockstep", chart(), "--set", value)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", value, err, want)
		}
	}
}

// TestChartRefusesWhatIsNotServed: a Kubernetes that has no MutatingAdmissionPolicy gets no policy for gangs by owner.
func TestChartRefusesWhatIsNotServed(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"1.36.0": "", "v1.36.1-gke.1000": "", "1.38.0": "", // one newer than the API that Lockstep is built for
		"1.35.4": "gangsByOwner.policy: it is a MutatingAdmissionPolicy, which Kubernetes has from 1.36, and this is v1.35.4",
	} {
		_, err := tool(t, "helm", "template", "lockstep", chart(), "--set", "gangsByOwner.policy=true", "--kube-version", version)
		if refused := err != nil; refused != (want != "") || refused && !strings.Contains(err.Error(), want) {
			t.Errorf("Kubernetes %s: error %v, want one with %q", version, err, want)
		}
	}
}

func TestChartPassesLint(t *testing.T) {
	t.Parallel()
	mustRun(t, "helm", "lint", "--strict", chart())
}

// TestViewerReadsTheConfiguration: a viewer may read the ConfigMap that the scheduler mounts, whatever name kustomize
// gives it.
func TestViewerReadsTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"kustomize": kustomize(t, "base"), "the chart": template(t, "gangs")} {
		rendered, configs := objects(t, text), []string{}
		for _, object := range rendered {
			if object.GetKind() == "ConfigMap" && strings.HasPrefix(object.GetName(), "lockstep-scheduler-config") {
				configs = append(configs, object.GetName())
			}
		}
		if role := field(rendered["ClusterRole /lockstep-viewer"], "rules"); len(configs) != 1 || !strings.Contains(role, "resourceNames:["+configs[0]+"]") {
			t.Errorf("%s: lockstep-viewer has %s, want ConfigMaps %v in it", name, role, configs)
		}
	}
}

// TestDeschedulerIsApart: who removes the descheduler with kubectl delete -k takes nothing from the scheduler or the
// controller.
func TestDeschedulerIsApart(t *testing.T) {
	t.Parallel()
	base := objects(t, kustomize(t, "base"))
	for _, folder := range []string{"descheduler", "descheduler-cron"} {
		for name := range objects(t, kustomize(t, folder)) {
			if base[name] != nil {
				t.Errorf("%s is in manifests/base and in manifests/%s", name, folder)
			}
		}
	}
}

// TestDeschedulerReadsTheConfiguration: the descheduler counts by the scheduler's profiles, also where somebody has a
// configuration of their own.
func TestDeschedulerReadsTheConfiguration(t *testing.T) {
	t.Parallel()
	own := filepath.Join(root, "manifests", "config", "instead-of-default-scheduler.yaml")
	for name, tc := range map[string]struct{ text, kind, want string }{
		"by itself":            {kustomize(t, "descheduler"), "Deployment", "scheduler-plugins-scheduler"},
		"its CronJob":          {kustomize(t, "descheduler-cron"), "CronJob", "scheduler-plugins-scheduler"},
		"in one with all":      {overlay(t, "", "base", "descheduler"), "Deployment", "scheduler-plugins-scheduler"},
		"in an overlay":        {overlay(t, own, "base", "descheduler/workload"), "Deployment", "default-scheduler"},
		"a CronJob in one":     {overlay(t, own, "base", "descheduler-cron/workload"), "CronJob", "default-scheduler"},
		"the chart":            {template(t, system, "descheduler.enabled=true"), "Deployment", "scheduler-plugins-scheduler"},
		"the chart, instead":   {template(t, system, "descheduler.enabled=true", "scheduler.mode=Instead"), "Deployment", "default-scheduler"},
		"the chart's CronJob":  {template(t, system, "descheduler.enabled=true", "descheduler.schedule=* * * * *"), "CronJob", "scheduler-plugins-scheduler"},
		"the chart's own file": {template(t, system, "descheduler.enabled=true", "file:scheduler.config="+own), "Deployment", "default-scheduler"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rendered := objects(t, tc.text)
			path := podTemplates[map[string]int{"Deployment": 0, "CronJob": 1}[tc.kind]]
			spec, _, err := unstructured.NestedMap(rendered[tc.kind+" "+system+"/lockstep-descheduler"].Object, append(slices.Clip(path), "spec")...)
			if err != nil {
				t.Fatal(err)
			}
			var pod v1.PodSpec
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod); err != nil {
				t.Fatal(err)
			}
			if args := pod.Containers[0].Args; !slices.Contains(args, "--scheduler-config="+pod.Containers[0].VolumeMounts[0].MountPath+"/config.yaml") {
				t.Errorf("arguments %q, want the configuration of the scheduler", args)
			}
			files := map[string]string{}
			for _, source := range pod.Volumes[0].Projected.Sources {
				mounted := rendered["ConfigMap "+system+"/"+source.ConfigMap.Name]
				if mounted == nil {
					t.Fatalf("ConfigMap %s is mounted, and not there", source.ConfigMap.Name)
				}
				data, _, err := unstructured.NestedStringMap(mounted.Object, "data")
				if err != nil {
					t.Fatal(err)
				}
				maps.Copy(files, data)
			}
			if !strings.Contains(files["config.yaml"], "\n- schedulerName: "+tc.want) || files["policy.yaml"] == "" {
				t.Errorf("mounted files %v, want a policy, and a configuration with a profile %s", slices.Sorted(maps.Keys(files)), tc.want)
			}
		})
	}
}
