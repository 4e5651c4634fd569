package plane

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// The components, in the order in which they are started.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	ControllerManager = "controller-manager"
)

var components = []string{Etcd, APIServer, ControllerManager}

// Services get addresses that nothing routes: no node runs here. The first one is the API server's own.
const serviceRange = "10.96.0.0/16"

// needed are the controllers that make a namespace fit for pods. Without them no control plane is ready: see probes.
var needed = []string{"serviceaccount-controller", "root-ca-certificate-publisher-controller"}

const frontProxy = "front-proxy-client"

var serviceIP = net.IPv4(10, 96, 0, 1)

// spec is the command line of a component. Flags differ from the defaults of a kubeadm cluster only where one machine,
// one test and no kubelet ask for it; the reason stands next to each.
func (p *Plane) spec(name string) supervisor.Spec {
	in := func(path ...string) string { return filepath.Join(append([]string{p.dir}, path...)...) }
	var args []string
	switch name {
	case Etcd:
		args = []string{in("etcd")}
	case APIServer:
		args = []string{
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", p.apiserver.number),
			"--etcd-servers=unix://" + in("etcd", "client"),
			"--tls-cert-file=" + in("pki", "apiserver.crt"),
			"--tls-private-key-file=" + in("pki", "apiserver.key"),
			"--client-ca-file=" + in("pki", "ca.crt"),
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + in("pki", "service-account.key"),
			"--service-account-signing-key-file=" + in("pki", "service-account.key"),
			"--service-cluster-ip-range=" + serviceRange,
			"--allow-privileged=true",
			// The aggregation layer: other API servers would know this one by the front proxy's certificate.
			"--requestheader-client-ca-file=" + in("pki", "ca.crt"),
			"--requestheader-allowed-names=" + frontProxy,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + in("pki", frontProxy+".crt"),
			"--proxy-client-key-file=" + in("pki", frontProxy+".key"),
			// The endpoints of the kubernetes service may not be loopback addresses, and no pod runs that could use
			// them.
			"--endpoint-reconciler-type=none",
		}
	case ControllerManager:
		args = []string{
			"--kubeconfig=" + in("controller-manager.kubeconfig"),
			"--authentication-kubeconfig=" + in("controller-manager.kubeconfig"),
			"--authorization-kubeconfig=" + in("controller-manager.kubeconfig"),
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", p.controllerManager.number),
			"--tls-cert-file=" + in("pki", "controller-manager-serving.crt"),
			"--tls-private-key-file=" + in("pki", "controller-manager-serving.key"),
			"--root-ca-file=" + in("pki", "ca.crt"),
			"--service-account-private-key-file=" + in("pki", "service-account.key"),
			"--cluster-signing-cert-file=" + in("pki", "ca.crt"),
			"--cluster-signing-key-file=" + in("pki", "ca.key"),
			"--use-service-account-credentials=true",
			"--controllers=" + strings.Join(append(slices.Clip(needed), p.controllers...), ","),
			// There is one, and a test that kills it should not wait for its lease to run out.
			"--leader-elect=false",
			// The default folder is in /usr, and it would be created.
			"--flex-volume-plugin-dir=" + in("flexvolume"),
			// The defaults (20 and 30) make tests wait.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		}
	}
	return supervisor.Spec{Name: name, Command: append([]string{p.binary, name}, args...), Dir: p.dir}
}
