package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// plane is a control plane with a second API server, to which the operators and the plans go: it has an audit log.
type plane struct {
	*cluster.Cluster
	audited    *rest.Config // of an administrator, at the second server
	kubeconfig string       // of the operators, likewise
	log        string
}

// account is that of the operators.
const account = "system:serviceaccount:default:"

func newPlane(ctx context.Context) (p *plane, err error) {
	p = &plane{}
	if p.Cluster, err = cluster.Start(ctx, cluster.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	p.log = filepath.Join(p.Dir(), "audit-"+rand.Text()+".log")
	if err := p.serveAudited(ctx); err != nil {
		return nil, err
	}
	all := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	documents := rbacv1.PolicyRule{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}
	cfg, err := p.ClusterServiceAccount(ctx, "default", all, documents)
	if err != nil {
		return nil, err
	}
	p.kubeconfig = filepath.Join(p.Dir(), "operators.kubeconfig")
	return p, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"plane": {Server: p.audited.Host, CertificateAuthorityData: cfg.CAData,
			CertificateAuthority: cfg.CAFile}},
		AuthInfos: map[string]*api.AuthInfo{"operator": {Token: cfg.BearerToken}},
		Contexts:  map[string]*api.Context{"plane": {Cluster: "plane", AuthInfo: "operator"}}, CurrentContext: "plane",
	}, p.kubeconfig)
}

// policy logs who wrote what, without the objects.
const policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func (p *plane) serveAudited(ctx context.Context) error {
	rules := p.log + ".policy"
	if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return err
	}
	binaries, err := cluster.Assets(ctx)
	if err != nil {
		return err
	}
	in := func(path ...string) string { return filepath.Join(append([]string{p.Dir()}, path...)...) }
	key := in("pki", "service-account.key")
	_, err = p.Run(ctx, cluster.Command{Name: "audited", Path: filepath.Join(binaries, "kube-apiserver"),
		Args: []string{
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
			"--etcd-servers=unix://" + in("etcd", "client"),
			"--tls-cert-file=" + in("pki", "apiserver.crt"), "--tls-private-key-file=" + in("pki", "apiserver.key"),
			"--client-ca-file=" + in("pki", "ca.crt"), "--authorization-mode=Node,RBAC",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
			"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
			"--audit-log-path=" + p.log, "--audit-policy-file=" + rules, "--audit-log-mode=blocking",
		}})
	if err != nil {
		return err
	}
	p.audited = rest.CopyConfig(p.Config())
	p.audited.Host, p.audited.QPS = fmt.Sprintf("https://127.0.0.1:%d", port), -1
	client, err := rest.HTTPClientFor(p.audited)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if resp, err := client.Get(p.audited.Host + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if time.Now().After(deadline) {
			return errors.New("the audited API server is not ready")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// entry is a line of the audit log.
type entry struct {
	Verb, RequestURI, UserAgent string
	User                        struct{ Username string }
	ObjectRef                   struct{ Resource, Subresource, Namespace, Name, APIGroup string }
	ResponseStatus              struct{ Code int }
}

func (e entry) writes() bool {
	return strings.Contains("create update patch delete deletecollection", e.Verb) &&
		!strings.Contains(e.RequestURI, "dryRun=All")
}

// entries returns the audit log from an offset on, and the offset of its end.
func (p *plane) entries(from int64) (all []entry, end int64, err error) {
	file, err := os.Open(p.log)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, err
	}
	for line := range strings.Lines(string(data)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, 0, err
		}
		all = append(all, e)
	}
	return all, from + int64(len(data)), nil
}
