// swift-tools-version:5.9
import PackageDescription

let package = Package(
  name: "Rushlight",
  products: [.library(name: "Rushlight", targets: ["Rushlight"])],
  targets: [
    // The C library, by pkg-config: `PKG_CONFIG_PATH` names `lib/pkgconfig` of its package.
    .systemLibrary(name: "CRushlight", pkgConfig: "rushlight"),
    .target(name: "Rushlight", dependencies: ["CRushlight"]),
  ]
)
