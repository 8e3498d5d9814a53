package lockstepcontroller_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// TestPage: the page has no data for callers that the API server does not know, and none for those that it does not let
// get them. A user who may see it sees gangs, queues and nodes.
func TestPage(t *testing.T) {
	t.Parallel()
	c := start(t, manifest(t, "crds"))
	off := run(t, c, "off")
	page := address(t)
	certificates := t.TempDir()
	client := trusting(t, certificates)
	on := run(t, c, "on", "--page-bind-address", page, "--page-cert-dir", certificates)
	n := newNamespace(t, c, "page")
	n.createGroup(2)
	n.create(1, byLabel)
	for _, args := range [][]string{
		{"create", "serviceaccount", "viewer", "--namespace", system},
		{"create", "serviceaccount", "stranger", "--namespace", system},
		{"create", "clusterrolebinding", "viewer", "--clusterrole=lockstep-page-reader", "--serviceaccount=" + system + ":viewer"},
		{"create", "serviceaccount", "guest", "--namespace", system},
		{"create", "serviceaccount", "tenant", "--namespace", system},
		{"create", "clusterrolebinding", "tenants", "--clusterrole=lockstep-page-tenant", "--serviceaccount=" + system + ":guest", "--serviceaccount=" + system + ":tenant"},
		{"create", "rolebinding", "tenant", "--namespace", "page", "--clusterrole=view", "--serviceaccount=" + system + ":tenant"},
	} {
		n.kubectl(args...)
	}
	viewer, stranger := token(t, c, "viewer"), token(t, c, "stranger")
	for _, path := range []string{"/overview", "/overview/history"} {
		for _, one := range []struct {
			token string
			want  int
		}{
			{"", http.StatusUnauthorized}, {"forged", http.StatusUnauthorized}, {stranger, http.StatusForbidden}, {viewer, http.StatusOK},
		} {
			await.NoError(t, "the page is served to those who may see it", func() error { // a new role takes a moment
				code, err := get(client, "https://"+page+path, one.token)
				if err != nil || code != one.want {
					return fmt.Errorf("getting %s: %d, want %d, %w", path, code, one.want, err)
				}
				return nil
			})
		}
	}
	if code, err := get(client, "https://"+page+"/", ""); err != nil || code != http.StatusOK {
		t.Errorf("the files of the page: %d, %v", code, err)
	}
	await.NoError(t, "the page shows what there is", func() error { return shows(client, "https://"+page+"/overview", viewer) })
	mine := "https://" + page + "/overview/mine"
	for account, want := range map[string]int{"guest": 0, "tenant": 1} {
		caller := token(t, c, account)
		if code, err := get(client, "https://"+page+"/overview", caller); err != nil || code != http.StatusForbidden {
			t.Errorf("who may see a part of the page gets all of it: %d, %v", code, err)
		}
		await.NoError(t, account+" sees the gangs of the namespaces whose pods it may list", func() error {
			return hasGangs(client, mine, caller, want)
		})
	}
	if code, err := get(client, mine, stranger); err != nil || code != http.StatusForbidden {
		t.Errorf("who may see no part of the page: %d, %v", code, err)
	}
	flood(t, c, client, "https://"+page+"/overview", viewer)
	renewed := trusting(t, certificates)
	await.NoError(t, "the page is served with the new certificate", func() error {
		_, err := get(renewed, "https://"+page+"/", "")
		return err
	})
	if err := contains(on.log(t), "forbidden"); err == nil {
		t.Errorf("it lacks permissions:\n%s", on.log(t))
	}
	if err := contains(off.log(t), `name="page"`); err == nil {
		t.Errorf("there is a page that nobody asked for:\n%s", off.log(t))
	}
	if err := contains(on.log(t), `name="page"`); err != nil {
		t.Error(err)
	}
}

// flood sends many unknown tokens: the API server is asked about few of them, and a user that was let in is served.
func flood(t *testing.T, c *localcluster.Cluster, client *http.Client, url, viewer string) {
	t.Helper()
	const tokens, perSecond, atOnce, others = 300, 5, 50, 10
	before, begun := tokenReviews(t, c), time.Now()
	codes := map[int]int{}
	for i := range tokens {
		code, err := get(client, url, fmt.Sprintf("forged-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		codes[code]++
	}
	if code, err := get(client, url, viewer); err != nil || code != http.StatusOK {
		t.Errorf("during a flood of unknown tokens a good one is answered %d, %v, want %d", code, err, http.StatusOK)
	}
	took := time.Since(begun)
	reviewed, most := tokenReviews(t, c)-before, atOnce+others+int(perSecond*took.Seconds())
	t.Logf("%d unknown tokens in %v: %d reviews, answers %v", tokens, took.Round(time.Millisecond), reviewed, codes)
	if reviewed > most || codes[http.StatusUnauthorized] == 0 || codes[http.StatusUnauthorized]+codes[http.StatusTooManyRequests] != tokens {
		t.Errorf("%d unknown tokens in %v: %d reviews, want %d at most; answers %v, want 401 and 429 only", tokens, took, reviewed, most, codes)
	}
}

// tokenReviews returns how many TokenReviews the API server has answered.
func tokenReviews(t *testing.T, c *localcluster.Cluster) int {
	t.Helper()
	text, err := c.Kubectl(t.Context(), "get", "--raw", "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, match := range regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="tokenreviews".*\} (\d+)$`).FindAllStringSubmatch(text, -1) {
		one, err := strconv.Atoi(match[1])
		if err != nil {
			t.Fatal(err)
		}
		n += one
	}
	return n
}

// trusting writes a new certificate into a folder, and returns a client that trusts no other.
func trusting(t *testing.T, dir string) *http.Client {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
}

// hasGangs reports whether so many gangs are shown to a caller.
func hasGangs(client *http.Client, url, token string, want int) error {
	var shown struct{ Gangs []json.RawMessage }
	if err := read(client, url, token, &shown); err != nil {
		return err
	}
	if len(shown.Gangs) != want {
		return fmt.Errorf("%d gangs, want %d", len(shown.Gangs), want)
	}
	return nil
}

// read reads what is shown to a caller.
func read(client *http.Client, url, token string, into any) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("reading what is shown: %w", err)
	}
	return nil
}

// shows reports whether the page shows the gang train, with the reason why its pod waits, and the nodes.
func shows(client *http.Client, url, token string) error {
	var shown struct {
		Gangs []struct {
			Namespace, Name, Phase, Reason string
			Minimum                        int
		}
		Topology struct {
			Resource v1.ResourceName
			Nodes    int
		}
	}
	if err := read(client, url, token, &shown); err != nil {
		return err
	}
	if len(shown.Gangs) != 1 || shown.Topology.Nodes != 4 {
		return fmt.Errorf("%d gangs and %d nodes, want 1 and 4", len(shown.Gangs), shown.Topology.Nodes)
	}
	if g := shown.Gangs[0]; g.Namespace != "page" || g.Name != "train" || g.Minimum != 2 || g.Phase != "Pending" || g.Reason != incomplete {
		return fmt.Errorf("the gang is %+v", g)
	}
	return nil
}
