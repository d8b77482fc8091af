# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts. install_packages PACKAGE...: gets those that are missing, as root on Debian.
BUILD_PACKAGES="build-essential cmake ninja-build pkg-config libevent-dev libmsgpack-dev libjansson-dev
libyaml-dev libxxhash-dev libsodium-dev liburing-dev libcmocka-dev"
TEST_PACKAGES="etcd-server redis-server python3 python3-dev python3-venv debootstrap valgrind clang libclang-rt-14-dev clang-format-14 e2fsprogs xfsprogs fio iproute2 nftables"

install_packages() {
    local missing="" package
    command -v dpkg-query >/dev/null || return 0
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" != 0 ]; then
        echo "missing packages:$missing" >&2
        echo "install them with: sudo apt-get install -y --no-install-recommends$missing" >&2
        return 1
    fi
    echo "installing:$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
