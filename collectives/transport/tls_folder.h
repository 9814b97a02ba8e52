/* The folder that `--tls DIR` names, as `trainctl cert` makes it and daemons, trainctl and libtraincoll read it. */
#ifndef TR_COLLECTIVES_TRANSPORT_TLS_FOLDER_H
#define TR_COLLECTIVES_TRANSPORT_TLS_FOLDER_H

#define TLS_CA_FILE   "ca.crt"   /* of the cluster's CA: who is signed by it is a member */
#define TLS_CERT_FILE "node.crt" /* ours */
#define TLS_KEY_FILE  "node.key" /* of node.crt; mode 0600 */
/* Beside ca.crt in the CA's own folder only, which no daemon needs. */
#define TLS_CA_KEY_FILE "ca.key"

#endif
