package plane

import (
	"encoding/base64"
	"fmt"
	"os"
)

// KubeconfigHeader is the first line of every kubeconfig written here. A file without it was written by another
// program.
const KubeconfigHeader = "# Written by thermostat for a throw-away cluster.\n"

// writeKubeconfig writes a kubeconfig that holds its certificates itself, so that it can be copied anywhere.
func (a *authority) writeKubeconfig(path, server, client string) error {
	var data [3]string
	for i, file := range []string{"ca.crt", client + ".crt", client + ".key"} {
		content, err := os.ReadFile(a.dir + "/" + file)
		if err != nil {
			return fmt.Errorf("write the kubeconfig of %s: %w", client, err)
		}
		data[i] = base64.StdEncoding.EncodeToString(content)
	}
	text := fmt.Sprintf(KubeconfigHeader+`apiVersion: v1
kind: Config
clusters:
- name: thermostat
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
contexts:
- name: thermostat
  context: {cluster: thermostat, user: %s}
current-context: thermostat
`, server, data[0], client, data[1], data[2], client)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", client, err)
	}
	return nil
}
