package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	apiversion "k8s.io/apimachinery/pkg/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// versioned starts an API server of a version, whose first answers are failures. It returns a kubeconfig for it.
func versioned(t *testing.T, info apiversion.Info, failures int32) string {
	t.Helper()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/version":
			http.NotFound(w, r)
			return
		case asked.Add(1) <= failures:
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(info)
	}))
	t.Cleanup(server.Close)
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	cfg.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	cfg.CurrentContext = "c"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*cfg, kubeconfig))
	return kubeconfig
}

// TestEmulate: features follow an API server that is older than the program, and nothing else.
func TestEmulate(t *testing.T) {
	for sentence, c := range map[string]struct {
		server   apiversion.Info
		failures int32
		flag     string
		want     string
	}{
		"an older API server":                      {server: apiversion.Info{GitVersion: "v1.36.3"}, want: "1.36"},
		"as clouds write it":                       {server: apiversion.Info{GitVersion: "v1.35.4-eks-1a2b3c", Major: "1", Minor: "35+"}, want: "1.35"},
		"one of the same version":                  {server: apiversion.Info{GitVersion: "v1.37.9"}, want: "1.37"},
		"a newer one":                              {server: apiversion.Info{GitVersion: "v1.38.0"}, want: "1.37"},
		"a newer one that emulates an older":       {server: apiversion.Info{GitVersion: "v1.38.0", EmulationMajor: "1", EmulationMinor: "36"}, want: "1.36"},
		"one that does not answer at first":        {server: apiversion.Info{GitVersion: "v1.36.3"}, failures: 1, want: "1.36"},
		"a flag that says otherwise wins":          {server: apiversion.Info{GitVersion: "v1.35.4"}, flag: "1.36", want: "1.36"},
		"a file that names the kubeconfig is read": {server: apiversion.Info{GitVersion: "v1.36.0"}, want: "1.36"},
	} {
		t.Run(sentence, func(t *testing.T) {
			registry := basecompatibility.NewComponentGlobalsRegistry()
			must.Succeed(t, registry.Register(basecompatibility.DefaultKubeComponent, basecompatibility.NewEffectiveVersionFromString("1.37.1+lockstep-1", "1.33", "1.33"),
				utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()))
			opts := options.NewOptionsWithComponentGlobalsRegistry(registry)
			opts.Deprecated.Kubeconfig = versioned(t, c.server, c.failures)
			if strings.Contains(sentence, "file") {
				opts.ConfigFile = write(t, "config.yaml", configuration("clientConnection: {kubeconfig: "+opts.Deprecated.Kubeconfig+"}\n"))
				opts.Deprecated.Kubeconfig = ""
			}
			if c.flag != "" {
				must.Succeed(t, opts.Flags.FlagSet(featureFlags).Set(emulatedVersion, c.flag))
			}
			_, err := emulate(t.Context(), opts, true)
			must.Succeed(t, err)
			if got := registry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).EmulationVersion().String(); got != c.want {
				t.Errorf("it emulates %s, want %s", got, c.want)
			}
		})
	}
}

// TestEmulateRefused: who may not ask, and a version that the program cannot emulate, stop the start.
func TestEmulateRefused(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "who are you?", http.StatusUnauthorized)
	}))
	t.Cleanup(refuses.Close)
	for sentence, c := range map[string]struct{ master, kubeconfig, want string }{
		"credentials":        {refuses.URL, "", "asking the API server for its version: " + refuses.URL + " refuses the credentials; give others"},
		"a version long ago": {"", versioned(t, apiversion.Info{GitVersion: "v1.29.3"}, 0), "Kubernetes 1.29 is too old: 1.35 or newer is needed"},
	} {
		t.Run(sentence, func(t *testing.T) {
			registry := basecompatibility.NewComponentGlobalsRegistry()
			must.Succeed(t, registry.Register(basecompatibility.DefaultKubeComponent, basecompatibility.NewEffectiveVersionFromString("1.37.1+lockstep-1", "1.33", "1.33"),
				utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()))
			opts := options.NewOptionsWithComponentGlobalsRegistry(registry)
			opts.Master, opts.Deprecated.Kubeconfig = c.master, c.kubeconfig
			if _, err := emulate(t.Context(), opts, false); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %s", err, c.want)
			}
		})
	}
}

// TestEmulateBadFiles: what cannot be read is named.
func TestEmulateBadFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	bad := write(t, "config.yaml", "clientConnection: 5\n")
	for sentence, c := range map[string]struct{ config, kubeconfig, want string }{
		"no configuration":            {missing, "", missing},
		"one that is none":            {bad, "", bad},
		"a kubeconfig that is absent": {"", missing, missing},
	} {
		t.Run(sentence, func(t *testing.T) {
			opts := options.NewOptions()
			opts.ConfigFile, opts.Deprecated.Kubeconfig = c.config, c.kubeconfig
			if _, err := emulate(t.Context(), opts, true); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %s", err, c.want)
			}
		})
	}
}
